"""The tensors of a model on one rank, by class: what a checkpoint holds, cut as the engines cut it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from planner.model_facts import Forward, Mixer, Mla, ModelFacts, Moe, State


@dataclass(frozen=True, slots=True)
class Layout:
    """How a model is cut: tensor, pipeline, expert and data parallel sizes (``ep``: ranks that share the experts)."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    @property
    def gpus(self) -> int:
        """Devices that one deployment takes."""
        return self.tp * self.pp * self.dp


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor on one rank: ``rows`` x ``columns`` elements. ``rich``: kept finer by a K-quant mixture."""

    kind: str
    rows: int
    columns: int = 1
    rich: bool = False

    @property
    def elements(self) -> int:
        """Number of weights."""
        return self.rows * self.columns


def _cut(size: int, parts: int) -> int:
    return -(-size // parts)


@lru_cache(maxsize=512)
def layer_tensors(model: ModelFacts, mixer: Mixer, forward: Forward, layout: Layout) -> tuple[Tensor, ...]:
    """Tensors of one layer on one rank, in the order in which an engine makes them."""
    return (*_mixer(model, mixer, layout), *_forward(model, forward, layout), *_norms(model))


def _mixer(model: ModelFacts, mixer: Mixer, layout: Layout) -> Iterator[Tensor]:
    if mixer == "state" and model.state is not None:
        yield from _state(model.state, model.hidden, layout.tp)
    elif mixer in ("full", "window"):
        yield from _latent(model, model.mla, layout.tp) if model.mla else _attention(model, mixer, layout.tp)


def _attention(model: ModelFacts, mixer: Mixer, tp: int) -> Iterator[Tensor]:
    kv_heads, size = model.kv_heads, model.head_dim
    if mixer == "full" and model.wide_heads:
        kv_heads, size = model.wide_heads
    query = _cut(model.heads, tp) * size
    key = max(1, kv_heads // tp) * size
    gate = query if model.shape.gated_attention else 0
    yield Tensor("attention", query + gate + 2 * key, model.hidden, rich=True)
    if model.shape.qkv_bias:
        yield Tensor("norm", query + 2 * key)
    yield Tensor("attention", model.hidden, query)
    if model.shape.o_bias:
        yield Tensor("norm", model.hidden)
    if model.shape.sinks:
        yield Tensor("norm", _cut(model.heads, tp))
    if model.shape.qk_norm != "none":
        yield Tensor("norm", 2 * size if model.shape.qk_norm == "head" else query + key)


def _latent(model: ModelFacts, mla: Mla | None, tp: int) -> Iterator[Tensor]:
    assert mla is not None
    nope, value = mla.nope_dim or 128, mla.v_dim or 128
    heads = _cut(model.heads, tp)
    if mla.q_rank:
        yield Tensor("latent", mla.q_rank + mla.kv_rank + mla.rope_dim, model.hidden)
        yield Tensor("latent", heads * (nope + mla.rope_dim), mla.q_rank)
    else:
        yield Tensor("latent", heads * (nope + mla.rope_dim), model.hidden)
        yield Tensor("latent", mla.kv_rank + mla.rope_dim, model.hidden)
    yield Tensor("latent", heads * (nope + value), mla.kv_rank)
    yield Tensor("latent", model.hidden, heads * value)
    yield Tensor("copy", heads * (nope + value), mla.kv_rank)
    if mla.index_dim and mla.index_heads:
        yield Tensor("latent", mla.index_heads * mla.index_dim, mla.q_rank or model.hidden)
        yield Tensor("latent", mla.index_dim + mla.index_heads, model.hidden)
    yield Tensor("norm", mla.kv_rank + (mla.q_rank or 0))


def _state(state: State, hidden: int, tp: int) -> Iterator[Tensor]:
    keys, values = state.key_heads * state.key_dim, state.value_heads * state.value_dim
    if state.kind == "conv":
        yield Tensor("state", 3 * _cut(hidden, tp), hidden)
        yield Tensor("norm", _cut(hidden, tp), state.conv_taps)
        yield Tensor("state", hidden, _cut(hidden, tp))
    elif state.kind == "gdn":
        yield Tensor("state", _cut(2 * keys + 2 * values, tp), hidden)
        yield Tensor("router", _cut(2 * state.value_heads, tp), hidden)
        yield Tensor("norm", _cut(2 * keys + values, tp), state.conv_taps)
        yield Tensor("state", hidden, _cut(values, tp))
    elif state.kind == "kda":
        yield Tensor("state", _cut(2 * keys + values, tp), hidden)
        yield Tensor("norm", _cut(2 * keys + values, tp), state.conv_taps)
        # two low-rank gates (down to one head's size, up again) and the beta of each head
        yield Tensor("state", 2 * state.value_dim + _cut(state.value_heads, tp), hidden)
        yield Tensor("state", 2 * _cut(values, tp), state.value_dim)
        yield Tensor("state", hidden, _cut(values, tp))
    elif state.kind == "mamba2":
        groups = state.key_heads * state.key_dim
        yield Tensor("state", _cut(2 * values + 2 * groups + state.value_heads, tp), hidden)
        yield Tensor("norm", _cut(values + 2 * groups, tp), state.conv_taps)
        yield Tensor("norm", _cut(values, tp))
        yield Tensor("state", hidden, _cut(values, tp))
    else:
        inner = _cut(state.value_heads, tp)
        yield Tensor("state", 2 * inner, hidden)
        yield Tensor("norm", inner, state.conv_taps + 2)
        yield Tensor("state", state.key_heads + 2 * state.key_dim, inner)
        yield Tensor("state", inner, state.key_heads)
        yield Tensor("norm", 2 * inner, state.key_dim)  # A_log, held as fp32
        yield Tensor("state", hidden, inner)


def _forward(model: ModelFacts, forward: Forward, layout: Layout) -> Iterator[Tensor]:
    if forward == "dense":
        yield from _mlp(model, model.ffn_width, layout.tp)
    elif forward == "moe" and model.moe is not None:
        yield Tensor("router", model.moe.experts, model.hidden)
        if model.moe.shared_width:
            yield from _mlp(model, model.moe.shared_width, layout.tp)
        if model.shape.shared_expert_gate:
            yield Tensor("router", 1, model.hidden)
        yield from _experts(model, model.moe, layout)


def _mlp(model: ModelFacts, width: int, tp: int) -> Iterator[Tensor]:
    part, gates = _cut(width, tp), 2 if model.shape.gated_mlp else 1
    yield Tensor("dense", gates * part, model.hidden)
    yield Tensor("dense", model.hidden, part, rich=True)
    if model.shape.mlp_bias:
        yield Tensor("norm", gates * part + model.hidden)


def _experts(model: ModelFacts, moe: Moe, layout: Layout) -> Iterator[Tensor]:
    split = layout.ep > 1
    count = _cut(moe.experts, layout.ep) if split else moe.experts
    width = moe.width if split else _cut(moe.width, layout.tp)
    gates = 2 if model.shape.gated_mlp else 1
    yield Tensor("expert", count * gates * width, model.hidden)
    yield Tensor("expert", count * width, model.hidden, rich=True)
    if model.shape.expert_bias:
        yield Tensor("norm", count * (gates * width + model.hidden), 2)  # held as fp32


def _norms(model: ModelFacts) -> Iterator[Tensor]:
    for _ in range(model.shape.norms_per_layer):
        yield Tensor("norm", model.hidden * (2 if model.shape.norm_bias else 1))


def outer_tensors(model: ModelFacts, tp: int, *, first: bool, last: bool) -> Iterator[Tensor]:
    """Tensors outside the layers: embedding, head, last norm. The vocabulary is padded to 64 rows a rank group."""
    rows = _cut(-(-model.vocab // 64) * 64, tp)
    if first or (last and model.tied):
        yield Tensor("embedding", rows, model.hidden)
    if first and model.shape.has_positions:
        yield Tensor("embedding", model.max_positions + model.shape.learned_positions, model.hidden)
    if last and not model.tied:
        yield Tensor("head", rows, model.hidden)
    if last:
        yield Tensor("norm", model.hidden)
        if model.shape.head_bias:
            yield Tensor("norm", rows)


def text_params(model: ModelFacts) -> int:
    """Parameters of the text part, counted tensor by tensor (copies that engines make are not in it)."""
    alone = Layout()
    inner = sum(
        one.elements
        for mixer, forward in model.layers
        for one in layer_tensors(model, mixer, forward, alone)
        if one.kind != "copy"
    )
    return inner + sum(one.elements for one in outer_tensors(model, 1, first=True, last=True))


def active_params(model: ModelFacts) -> int:
    """Parameters that one token meets: of the experts only those that it is sent to."""
    if model.moe is None:
        return text_params(model)
    alone, idle = Layout(), 1 - model.moe.experts_per_token / model.moe.experts
    experts = sum(
        one.elements
        for mixer, forward in model.layers
        for one in layer_tensors(model, mixer, forward, alone)
        if one.kind == "expert"
    )
    return text_params(model) - round(experts * idle)
