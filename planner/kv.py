"""The KV cache: bytes of a token and of a sequence's fixed state, and how many tokens a pool holds.

Groups and blocks follow the engines: vLLM pools layers of one kind in groups of equal size and raises the block until a
block of attention is as large as a layer's recurrent state; SGLang keeps states in a pool of their own; llama.cpp gives
every layer the whole context.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from planner.model_facts import ModelFacts, State
from planner.tensors import Layout

#: SGLang's size of the window pool beside the full pool (swa_full_tokens_ratio)
SGLANG_WINDOW_SHARE: Final = 0.8
#: vLLM takes the larger group when it is less than this many times the smaller one
_NEAR: Final = 1.5
_ALIGN: Final = 16


@dataclass(frozen=True, slots=True)
class Cache:
    """What one rank keeps of a sequence.

    ``token_bytes``: of one token in one full layer; ``window_token_bytes``: in one window layer; ``state_bytes``: of one
    state layer, per sequence. Layer counts are those of the fullest pipeline stage.
    """

    full: int
    window: int
    state: int
    token_bytes: float
    window_token_bytes: float
    state_bytes: float
    window_tokens: int = 0

    @property
    def bytes_per_token(self) -> float:
        """Bytes of one more token of context where every attention layer keeps it."""
        return self.full * self.token_bytes + self.window * self.window_token_bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a pool holds: tokens as the engine prints them, full-length requests at once, and one request's need."""

    tokens: int
    concurrency: float
    need_bytes: float
    block_tokens: int


def cache(model: ModelFacts, layout: Layout, element_bytes: float, *, draft_layers: int = 0, split_v: bool = False,
          packed: bool = False) -> Cache:  # fmt: skip
    """What one rank keeps of a sequence.

    Parameters
    ----------
    model, layout
        Facts and how the model is cut. KV heads are repeated where there are more tensor-parallel ranks than heads; a
        latent is on every rank.
    element_bytes
        Bytes of one cached element.
    draft_layers
        Layers of a draft that share the pool.
    split_v
        Whether the values of a latent are kept a second time (llama.cpp).
    packed
        Whether latents are kept in the 656-byte form of sparse attention (fp8 with a 16-bit rotary part).
    """
    window_bytes = 2 * max(1, model.kv_heads // layout.tp) * model.head_dim * element_bytes
    full_bytes = window_bytes
    if model.mla is not None:
        full_bytes = (model.mla.kv_rank * (2 if split_v else 1) + model.mla.rope_dim) * element_bytes
        if packed:
            full_bytes = model.mla.kv_rank + 4 * (model.mla.kv_rank / 128) + 2 * model.mla.rope_dim
        if model.mla.index_dim and not split_v:
            full_bytes += model.mla.index_dim + 4  # fp8 keys and one fp32 scale
    elif model.wide_heads:
        full_bytes = 2 * max(1, model.wide_heads[0] // layout.tp) * model.wide_heads[1] * element_bytes
    state = state_bytes(model.state, layout.tp) if model.state and model.state_layers else 0.0
    return Cache(
        ceil(model.full_layers / layout.pp) + draft_layers, ceil(model.window_layers / layout.pp),
        ceil(model.state_layers / layout.pp), full_bytes, window_bytes, state, model.window_tokens or 0,
    )  # fmt: skip


def state_bytes(state: State, tp: int) -> float:
    """Bytes of one layer's state of one sequence on one rank: the recurrent part in fp32, the convolution in 16 bit."""
    keys, values = state.key_heads * state.key_dim, state.value_heads * state.value_dim
    taps = (state.conv_taps - 1) * 2
    if state.kind == "conv":
        return values / tp * taps
    if state.kind == "mamba1":
        return state.value_heads / tp * (state.key_dim * 4 + taps)
    recurrent = state.value_heads / tp * state.key_dim * state.value_dim * 4
    return recurrent + (2 * keys + values) / tp * taps


def block_bytes(kept: Cache, block_tokens: int) -> tuple[int, int, float]:
    """Tokens of a block in full and in window layers, and its bytes in one layer: one size for all kinds (vLLM)."""
    tokens = [b for n, b in ((kept.full, kept.token_bytes), (kept.window, kept.window_token_bytes)) if n]
    if not tokens:
        return block_tokens, block_tokens, kept.state_bytes
    if kept.state:
        block_tokens = max(block_tokens, _ALIGN * ceil(kept.state_bytes / min(tokens) / _ALIGN))
    page = block_tokens * max(tokens)
    window = int(page / kept.window_token_bytes) if kept.window else block_tokens
    return int(page / kept.token_bytes) if kept.full else window, window, page


def uniform(kept: Cache, pool_bytes: float, *, length: int, block_tokens: int) -> Capacity:
    """A pool where every attention layer keeps every token."""
    page = block_tokens * kept.bytes_per_token
    blocks = int(max(0.0, pool_bytes) // page)
    needed = ceil(length / block_tokens)
    return Capacity(blocks * block_tokens, blocks / needed, needed * page, block_tokens)


def grouped(kept: Cache, pool_bytes: float, *, length: int, block_tokens: int, step_tokens: int, state_slots: int,
            by_concurrency: bool) -> Capacity:  # fmt: skip
    """A pool shared by groups of layers: full, window and state layers (vLLM's hybrid manager).

    Parameters
    ----------
    kept, pool_bytes
        What a sequence needs, and the bytes there are.
    length
        Longest request, tokens.
    block_tokens, step_tokens
        Block size asked for, and most tokens of one step (a window keeps its width and the step's tokens).
    state_slots
        Blocks of state that a request holds in each state group.
    by_concurrency
        Whether the printed tokens are concurrency times ``length`` instead of blocks of one group.
    """
    counts = [n for n in (kept.full, kept.window, kept.state) if n]
    block_tokens, window_block, page = block_bytes(kept, block_tokens)
    least, most = min(counts), max(counts)
    size = most if most < _NEAR * least else least
    groups = [ceil(n / size) for n in (kept.full, kept.window, kept.state)]
    windowed = min(length, kept.window_tokens - 1 + step_tokens)
    per_request = (
        groups[0] * ceil(length / block_tokens)
        + groups[1] * min(ceil(windowed / window_block) + 1, ceil(length / window_block))
        + groups[2] * state_slots
    )
    blocks = int(max(0.0, pool_bytes) // (page * size))
    concurrency = blocks / per_request
    tokens = int(concurrency * length) if by_concurrency else blocks // sum(groups) * block_tokens
    return Capacity(tokens, concurrency, per_request * page * size, block_tokens)


def by_tokens(kept: Cache, pool_bytes: float, *, length: int, block_tokens: int, window_share: float) -> Capacity:
    """A pool counted in tokens (SGLang, TensorRT-LLM): window layers keep ``window_share`` of the tokens."""
    token = kept.full * kept.token_bytes + window_share * kept.window * kept.window_token_bytes
    tokens = int(max(0.0, pool_bytes) / token) // block_tokens * block_tokens
    return Capacity(tokens, tokens / length, length * token, block_tokens)


def context_bytes(kept: Cache, *, context: int, batch: int, slots: int) -> float:
    """Bytes of llama.cpp's cache: full layers hold the context, window layers the window and one batch, padded to 256."""
    cells = min(context, 256 * ceil((kept.window_tokens * slots + batch) / 256)) if kept.window else 0
    return (
        kept.full * context * kept.token_bytes
        + kept.window * cells * kept.window_token_bytes
        + kept.state * slots * kept.state_bytes
    )
