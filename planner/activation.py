"""The peak of memory beside weights while an engine profiles itself: forward pass, sampler, image encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.budget import Era
from planner.estimate import Estimate
from planner.model_facts import ModelFacts, State
from planner.tensors import Layout

#: patches that one image token stands for: 2 x 2 merged in most encoders, 4 x 4 pooled in Gemma's
_PATCHES: Final = 4
_PATCHES_GEMMA: Final = 16
#: most tokens of one image of the encoders that take any resolution (Qwen-VL: max_pixels 12.8 M, 28 x 28 a token)
_ITEM_TOKENS: Final = 16384


@dataclass(frozen=True, slots=True)
class Peak:
    """The activation peak of one rank, bytes, and its candidates: the largest of them is the peak."""

    total: Estimate
    forward: float
    sampler: float
    vision: float


def forward_bytes_per_token(model: ModelFacts, layout: Layout) -> float:
    """Bytes of one token at the peak of a forward pass in 16 bit.

    Gated feed-forward: gate and up (4 I), their product (2 I), and three copies of the hidden state (6 H) live at once;
    experts keep their own intermediate results for each token's choice of experts. Re-derived on the cases of Llama 3.1
    8B at 20,000 and 29,000 tokens: 110.6 kB a token.
    """
    hidden = 6.0 * model.hidden
    dense = 6.0 * model.ffn_width / layout.tp if any(f == "dense" for _, f in model.layers) else 0.0
    experts = 0.0
    if model.moe is not None:
        width = model.moe.width / (1 if layout.ep > 1 else layout.tp)
        experts = model.moe.experts_per_token * (2 * max(2 * width, model.hidden) + 2 * width)
        experts += 6.0 * model.moe.shared_width / layout.tp
    query = model.heads / layout.tp * model.head_dim
    mixer = 2.0 * (3 * query + 2 * max(1, model.kv_heads // layout.tp) * model.head_dim)
    if model.state is not None and model.state_layers:
        mixer = max(mixer, _state_bytes_per_token(model.state, layout.tp))
    return hidden + max(dense, experts, mixer)


def _state_bytes_per_token(state: State, tp: int) -> float:
    """Bytes of one token in a recurrent layer's chunked scan (flash-linear-attention): 16 bit, chunks of 64.

    Projections and convolved copies of queries, keys and values, gates, the scan's u, w and corrected values, output;
    per chunk the in-chunk matrix of each head (fp32 and 16 bit) and the state at its start.
    """
    values, keys = state.value_heads * state.value_dim / tp, state.key_heads * state.key_dim / tp
    if state.kind not in ("gdn", "kda"):
        return 2.0 * (4 * values + 4 * keys) + 4 * values
    streams = 2.0 * ((2 * keys + 2 * values) + (2 * keys + values) + (keys + values) + 3 * values)
    gates = 4.0 * keys if state.kind == "kda" else 0.0
    heads = state.value_heads / tp
    return streams + gates + heads * (64 * 6 + 2 * state.key_dim * state.value_dim / 64)


def vision_bytes(model: ModelFacts, tokens: int) -> float:
    """Bytes of the image encoder's profile run, as many images as a step may hold.

    A plain feed-forward of 3.7 times the hidden size holds input, residual, and its inner result twice: 9.5 values of
    16 bit, 20 B with the mask, per patch and hidden unit.
    """
    if model.vision is None:
        return 0.0
    gemma = model.architecture.startswith("Gemma")
    flexible = model.architecture.startswith("Qwen")
    patches = (_PATCHES_GEMMA if gemma else _PATCHES) * max(tokens, _ITEM_TOKENS if flexible else 0)
    return 20.0 * patches * model.vision[1]


def activation_peak(
    model: ModelFacts,
    layout: Layout,
    era: Era,
    *,
    tokens: int,
    sequences: int,
    text_only: bool = False,
    split_k: int = 0,
    fewer: float = 1.0,
) -> Peak:
    """The peak that an engine measures before it sizes its cache.

    Parameters
    ----------
    model, layout, era
        What runs, how it is cut, and the engine's behaviour.
    tokens, sequences
        Tokens and sequences of the profile run.
    text_only
        Whether the image encoder is left out of the profile.
    split_k
        Partial results that an early 4-bit kernel keeps of its widest output.
    fewer
        Share of ``sequences`` that may be the truth where nobody told the number; lowers the low end.

    Returns
    -------
    Peak
        Bytes on one rank. The hidden states of the run are held while it samples.
    """
    low, point, high = era.activation_factor
    widest = model.moe.width if model.moe else model.ffn_width / layout.tp  # experts were not cut when this mattered
    forward = (forward_bytes_per_token(model, layout) + 2.0 * split_k * widest) * tokens
    held = 2.0 * tokens * model.hidden
    sampler = era.sampler_bytes * min(sequences, tokens) * model.vocab if era.sampler_bytes else 0.0
    vision = 0.0 if text_only else vision_bytes(model, tokens)
    if sampler:
        sampler += held
    best = max(forward * point, sampler, vision)
    lean = era.sampler_least * min(sequences, tokens) * model.vocab + held if era.sampler_least else sampler
    least = max(forward * low, fewer * min(lean, sampler * (1 - era.sampler_doubt)), 0.0)
    most = max(forward * high, sampler * (1 + era.sampler_doubt), vision * 2.0)
    names = {"forward pass": forward * point, "sampler": sampler, "image encoder": vision}
    biggest = max(names, key=lambda name: names[name])
    basis = f"{biggest}: {tokens:,} tokens, {min(sequences, tokens):,} sequences"
    return Peak(Estimate(best, min(best, least), most, basis), forward * point, sampler, vision)
