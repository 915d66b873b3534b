"""What one step of a deployment must move and compute, as seconds at data-sheet peaks: the roofline's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from planner.kv import cache
from planner.model_facts import ModelFacts
from planner.quantisation import Scheme
from planner.speed.peaks import Peaks
from planner.tensors import Layout, layer_tensors
from planner.weights import weights

#: scheme of the weights → type in which matrices are multiplied; the first that the card has
COMPUTE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "fp8": ("fp8", "fp16"), "fp8-mlp-only": ("fp8", "fp16"), "int8": ("int8", "fp16"),
        "nvfp4": ("fp4", "fp16"), "mxfp4": ("fp4", "fp16"), "fp4-experts": ("fp8", "fp16"),
    }
)  # fmt: skip
_OUTER: Final = ("embedding", "norm", "copy", "router")
#: bytes of an activation that ranks exchange
_ACTIVATION_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds at peak of one engine instance; all cards of the instance work side by side.

    ``dense_s``: weights that every step reads; ``expert_s``: all routed experts; ``routed_ratio``: share of the experts
    that one token meets. ``full_kv_s``, ``window_kv_s``: one token of context in the layers that keep all, or the last
    ``window_tokens``; ``state_s``: a sequence's recurrent state, read and written. ``flop_s``: matrices of one token;
    ``head_s``: its share of the output head; ``pair_s``: attention of one (token, earlier token) pair, ``window_pair_s``
    the same in window layers. ``exchange_s``: what ranks exchange for one token; ``exchanges``: how often a step waits
    for all ranks. ``weights_bytes`` and ``kv_token_bytes``: what one card holds of the weights and of one token.
    """

    layers: int
    dense_s: float
    expert_s: float
    routed_ratio: float
    full_kv_s: float
    window_kv_s: float
    window_tokens: int
    state_s: float
    flop_s: float
    head_s: float
    pair_s: float
    window_pair_s: float
    exchange_s: float
    exchanges: int
    attention_ranks: int
    weights_bytes: float
    kv_token_bytes: float
    latent: bool
    moe: bool

    def weights_s(self, tokens: float) -> float:
        """Reading the weights that ``tokens`` tokens touch."""
        missed: float = (1 - self.routed_ratio) ** max(1.0, tokens)
        return self.dense_s + self.expert_s * (1 - missed)

    def context_s(self, context_tokens: float) -> float:
        """Reading what one sequence of this context keeps."""
        windowed = min(context_tokens, self.window_tokens) if self.window_tokens else 0.0
        own = self.full_kv_s * context_tokens + self.window_kv_s * windowed + self.state_s
        return own / self.attention_ranks

    def prompt_s(self, tokens: float, cached_tokens: float = 0.0) -> float:
        """Arithmetic of a prompt of ``tokens`` of which the first ``cached_tokens`` are in the cache."""
        new = max(0.0, tokens - cached_tokens)
        pairs = new * (cached_tokens + new / 2)
        windowed = new * min(cached_tokens + new / 2, self.window_tokens) if self.window_tokens else 0.0
        return new * self.flop_s + pairs * self.pair_s + windowed * self.window_pair_s


@lru_cache(maxsize=4096)
def work(model: ModelFacts, scheme: Scheme, card: Peaks, layout: Layout, kv_element_bytes: float) -> Work:
    """Ideal times of a model in a scheme on cards of one kind.

    Parameters
    ----------
    model, scheme, card
        Facts, the scheme of the weights, and the peaks of one card.
    layout
        ``tp`` x ``pp`` cards hold one copy; with ``dp`` > 1 attention is repeated on as many groups of ranks, and
        experts are shared by ``ep`` ranks.
    kv_element_bytes
        Bytes of one cached element.
    """
    held = weights(model, scheme, layout, pytorch=False)
    by_class = held.bytes_by_class
    expert_bytes = by_class.get("expert", 0.0)
    moved = sum(by_class.values()) - by_class.get("embedding", 0.0) + (by_class.get("embedding", 0.0) * model.tied)
    speed, ranks = card.bandwidth_bytes_per_s, layout.tp * layout.pp * layout.dp
    kept = cache(model, layout, kv_element_bytes)
    kind = next((k for k in COMPUTE.get(scheme.name, ()) if k in card.flops), "fp16")
    peak = card.flops[kind] * ranks
    wide, pair, window_pair = _multiplications(model)
    stages = layout.pp  # a stage reads 1/pp of the weights; a token passes all stages one after the other
    link = card.link_bytes_per_s if layout.tp * layout.dp <= 2 else card.wide_link_bytes_per_s
    return Work(
        layers=len(model.layers), dense_s=(moved - expert_bytes) * stages / speed, expert_s=expert_bytes * stages / speed,
        routed_ratio=model.moe.experts_per_token / model.moe.experts if model.moe else 1.0,
        full_kv_s=kept.full * kept.token_bytes * stages / speed,
        window_kv_s=kept.window * kept.window_token_bytes * stages / speed, window_tokens=kept.window_tokens if kept.window else 0,
        state_s=2 * kept.state * kept.state_bytes * stages / speed, flop_s=2 * wide / peak,
        head_s=2 * model.vocab * model.hidden / (card.flops["fp16"] * ranks),
        pair_s=pair / (card.flops["fp16"] * ranks), window_pair_s=window_pair / (card.flops["fp16"] * ranks),
        exchange_s=_exchanged(model, layout) / link, exchanges=2 * len(model.layers) if max(layout.tp, layout.ep, layout.dp) > 1 else 0,
        attention_ranks=layout.dp, weights_bytes=held.total.point, kv_token_bytes=kept.bytes_per_token, latent=model.mla is not None, moe=model.moe is not None,
    )  # fmt: skip


def _exchanged(model: ModelFacts, layout: Layout) -> float:
    """Bytes of one token on a rank's link: two ring all-reduces a layer (tp), or sending to experts and back (ep, dp)."""
    reduced = 4 * len(model.layers) * (layout.tp - 1) / layout.tp if layout.tp > 1 else 0.0
    ranks = max(layout.ep, layout.dp)
    sent = 0.0
    if model.moe is not None and layout.dp > 1:
        sent = 2 * model.moe_layers * min(model.moe.experts_per_token, ranks - 1) / ranks
    return (reduced + sent) * model.hidden * _ACTIVATION_BYTES


def _multiplications(model: ModelFacts) -> tuple[float, float, float]:
    """Weights that one token meets without embedding and head; FLOPs of a pair in full and in window layers."""
    alone, share = Layout(), model.moe.experts_per_token / model.moe.experts if model.moe else 1.0
    wide = sum(
        one.elements * (share if one.kind == "expert" else 1.0)
        for mixer, forward in model.layers
        for one in layer_tensors(model, mixer, forward, alone)
        if one.kind not in _OUTER
    )
    size = model.head_dim
    if model.mla is not None:
        size = ((model.mla.nope_dim or 128) + model.mla.rope_dim + (model.mla.v_dim or 128)) // 2
    pair = 4.0 * model.heads * size
    return float(wide), pair * model.full_layers, pair * model.window_layers
