"""From a card's memory to the KV pool: one function a rule, all numbers from the engine's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from planner.activation import Peak, activation_peak
from planner.budget import Era, Rule, Span
from planner.estimate import Estimate, exactly, less, total
from planner.kv import SGLANG_WINDOW_SHARE, Cache, Capacity, by_tokens, cache, context_bytes, grouped, uniform
from planner.quantisation import Scheme, scheme
from planner.tensors import layer_tensors
from planner.vram import GIB, Line, Request, Settings
from planner.weights import Weights, draft_params, weights

#: vLLM's own estimate of captured graphs (gpu_model_runner.py, profile_cudagraph_memory): it extrapolates from a few
#: graphs, so it grows with the number of batch sizes captured, and is known to be too high (vllm pull request 45197)
_GRAPH_BASE_GIB: Final = 0.4
_GRAPH_FULL_GIB: Final = 1.2
_GRAPH_BATCHES: Final = 512
#: an operating system and its services on a machine whose card shares the host's memory
_SYSTEM_GIB: Final[Span] = (1.5, 4.0, 10.0)
#: llama.cpp: logits of one physical batch in fp32, and scratch of the graph
_SCRATCH_MIB: Final[Span] = (40.0, 80.0, 400.0)
#: sequences that a start may have asked for, of the default, where its arguments are not all known
_FEWER: Final = 0.25
#: a LoRA adapter is held for at most this rank unless told (vLLM: max_lora_rank 16; Unsloth sets 64)
LORA_RANK: Final = 16
_LORA_MOST: Final = 64
#: SGLang's share of recurrent states in the pool: ratio / (1 + ratio) with mamba_full_memory_ratio 0.9
_STATE_SHARE: Final = 0.9 / 1.9


@dataclass(frozen=True, slots=True)
class Pool:
    """One way to the pool: what else is held, bytes of KV, and the recurrent states that are pooled apart."""

    lines: tuple[Line, ...]
    size: Estimate | None
    peak: Peak
    state: Estimate | None = None


def engine_weights(request: Request) -> Weights:
    """Weights as this engine holds them, its own copies included."""
    if request.file_bytes is not None:
        device, host = request.file_bytes
        size = device / (request.layout.tp * request.layout.pp)
        doubt = 0.002 if request.layout.gpus == 1 else 0.06  # how uneven the cut is, is not in the file's header
        near = Estimate(size, size * (1 - doubt), size * (1 + doubt), "tensors of the file")
        return Weights(near, {"file": size}, host)
    pytorch, era = request.engine.rule != "fixed_context", request.engine.era_of(request.version)
    found = weights(request.model, _scheme(request), request.layout, pytorch=pytorch, expert_rows=era.expert_rows)
    extra = (era.rotary_copies - 1) * found.bytes_by_class.get("rotary", 0.0)
    if extra:
        by_class = {**found.bytes_by_class, "rotary": found.bytes_by_class["rotary"] + extra}
        found = replace(found, total=total([found.total, exactly(extra)], found.total.basis), bytes_by_class=by_class)
    low, point, high = (part * GIB for part in request.engine.load_gib)
    if high:
        by_class = {**found.bytes_by_class, "libraries": point}
        load = Estimate(point, low, high)
        found = replace(found, total=total([found.total, load], found.total.basis), bytes_by_class=by_class)
    return found


def _scheme(request: Request) -> Scheme:
    """AutoAWQ never learned recurrent layers: AWQ of such models comes from llm-compressor, in groups of 32."""
    if request.scheme.name == "awq-int4" and request.model.state is not None:
        return scheme("awq-int4-g32")
    return request.scheme


def kept(request: Request) -> Cache:
    """What one rank keeps of a sequence."""
    split = request.engine.rule == "fixed_context"
    drafts = 0
    if request.draft_tokens and request.engine.rule == "share_of_total":
        drafts = request.model.draft_layers or 1
    return cache(request.model, request.layout, request.element_bytes, draft_layers=drafts, split_v=split,
                 packed=_packed(request))  # fmt: skip


def _packed(request: Request) -> bool:
    """Whether latents are kept in the form of sparse attention: vLLM takes it for every fp8 cache of such models."""
    if request.kv_dtype == "fp8_ds_mla":
        return True
    sparse = request.model.mla is not None and request.model.mla.index_dim is not None
    return sparse and request.engine.rule == "share_of_total" and request.kv_dtype.startswith("fp8")


def _span(span: Span, basis: str) -> Estimate:
    low, point, high = (part * GIB for part in span)
    return Estimate(point, low, high, basis)


def _extras(request: Request) -> list[Line]:
    """Adapters and drafts: loaded beside the model."""
    found = []
    model, ranks = request.model, request.layout.tp * request.layout.pp
    if request.lora_rank:
        sides = sum(
            t.rows + t.columns
            for mixer, forward in model.layers
            for t in layer_tensors(model, mixer, forward, request.layout)
            if t.kind in ("attention", "dense")
        )
        size = 2.0 * sides * request.lora_rank / request.layout.pp
        most = size * max(1.0, _LORA_MOST / request.lora_rank) if "lora_rank" in request.soft else size * 1.2
        found.append(
            Line("LoRA buffers", Estimate(size, size * 0.5, most, f"rank {request.lora_rank}, all projections"))
        )
    if request.draft_tokens:
        own = draft_params(model)
        size = 2.0 * (own or 0.02 * (model.total_params or 0)) / ranks
        basis = "multi-token-prediction layers" if own else "draft model of about 2 % of the target's size: not told"
        found.append(Line("draft weights", Estimate(size, size * 0.4, size * 2.5, basis)))
    return found


def graphs(request: Request, resolved: Settings, *, counted: bool) -> Line | None:
    """CUDA graphs; None where none are captured."""
    if request.eager or request.engine.rule == "fixed_context":
        return None
    share = min(1.0, resolved.max_num_seqs / _GRAPH_BATCHES)
    point = (_GRAPH_BASE_GIB + _GRAPH_FULL_GIB * share) * GIB
    basis = "the engine's own estimate" if counted else "captured after the pool, outside the share"
    return Line("CUDA graphs", Estimate(point, 0.05 * GIB, point + 1.6 * GIB * (0.4 + share), basis))


def _others(request: Request) -> list[Line]:
    """What other processes hold: told, and the operating system's part where the memory is the host's too."""
    found = []
    if request.other_gib:
        found.append(Line("other processes", exactly(request.other_gib * GIB, "told")))
    if request.gpu.shared and request.engine.rule != "share_of_total":
        found.append(Line("operating system", _span(_SYSTEM_GIB, "the card's memory is the host's too; not measured")))
    return found


def _total(request: Request) -> Estimate | None:
    size = request.gpu.total_gib
    return None if size is None else size.scaled(GIB)


def _share_of_total(request: Request, era: Era, resolved: Settings, held: Weights) -> Pool:
    peak = _peak(request, era, resolved)
    ranks = request.layout.tp * request.layout.pp
    lines = [
        Line("weights", held.total), *_extras(request), Line("activation peak", peak.total),
        Line("outside PyTorch", total([_span(request.engine.outside(ranks), ""), _span(era.context_gib, "")],
                                      f"context, libraries, buffers of {ranks} ranks")),
    ]  # fmt: skip
    captured = graphs(request, resolved, counted=True) if era.graphs_counted else None
    if captured:
        lines.append(captured)
    lines.extend(_others(request))
    card = _total(request)
    if card is None:
        return Pool(tuple(lines), None, peak)
    share = resolved.fraction
    budget = Estimate(card.point * share.point, card.low * share.low, card.high * share.high)
    return Pool(
        tuple(lines), less(budget, total(line.size for line in lines), "share of the card, less the rest"), peak
    )


def _share_after_load(request: Request, era: Era, resolved: Settings, held: Weights) -> Pool:
    peak = _peak(request, era, resolved)
    ranks = request.layout.tp * request.layout.pp
    outside = _span(request.engine.outside(ranks), f"gone before the first reading: context, NCCL of {ranks} ranks")
    extras = _extras(request)
    lines = [Line("weights", held.total), *extras, Line("outside PyTorch", outside)]
    lines.extend(_others(request))
    card = _total(request)
    if card is None:
        return Pool(tuple(lines), None, peak)
    before = less(
        card,
        total(line.size for line in lines if line.name in ("outside PyTorch", "other processes", "operating system")),
    )
    share = resolved.fraction
    budget = Estimate(before.point * share.point, before.low * share.low, before.high * share.high)
    rest = less(
        budget, total([held.total, *(line.size for line in extras)]), "free after load, less the engine's reserve"
    )
    reserve = Estimate(before.point * (1 - share.point), before.low * (1 - share.high), before.high * (1 - share.low),
                       "left for activations and graphs")  # fmt: skip
    lines.append(Line("reserve", reserve))
    state = _state_pool(request, era, rest)
    return Pool(tuple(lines), less(rest, state, rest.basis) if state else rest, peak, state)


def _state_pool(request: Request, era: Era, rest: Estimate) -> Estimate | None:
    """Recurrent states that SGLang pools apart: slots of running requests, or a share of what is left."""
    one = kept(request)
    if not one.state:
        return None
    slot = one.state * one.state_bytes
    if request.max_num_seqs is None:
        return rest.at_least(0.0).scaled(_STATE_SHARE)
    slots = request.max_num_seqs * era.state_ratio + 1
    least = request.max_num_seqs * max(1, era.state_ratio - 2) + 1  # the overlap takes two slots of a request
    return Estimate(slots * slot, least * slot, slots * slot * 1.05, f"{slots} slots of states")


def _share_of_free(request: Request, era: Era, resolved: Settings, held: Weights) -> Pool:
    peak = _peak(request, era, resolved)
    ranks = request.layout.tp * request.layout.pp
    outside = _span(request.engine.outside(ranks), f"context, buffers of {ranks} ranks")
    lines = [Line("weights", held.total), *_extras(request), Line("activation peak", peak.total),
             Line("outside PyTorch", outside)]  # fmt: skip
    lines.extend(_others(request))
    card = _total(request)
    if card is None:
        return Pool(tuple(lines), None, peak)
    free, share = less(card, total(line.size for line in lines)), resolved.fraction
    ends = (
        sorted((free.low * share.low, free.low * share.high)),
        sorted((free.high * share.low, free.high * share.high)),
    )
    size = Estimate(free.point * share.point, ends[0][0], ends[1][1], "share of what is free after the load")
    return Pool(tuple(lines), size, peak)


def _fixed_context(request: Request, era: Era, resolved: Settings, held: Weights) -> Pool:
    peak = _peak(request, era, resolved)
    low, point, high = (part * 2**20 for part in _SCRATCH_MIB)
    logits = 4.0 * resolved.batched_tokens * request.model.vocab
    scratch = Estimate(
        logits + point, 0.5 * logits + low, 3 * logits + high, "logits of one batch, and the graph's scratch"
    )
    outside = _span(request.engine.outside(1), "context of the driver")
    lines = (Line("weights", held.total), Line("compute buffer", scratch), Line("outside PyTorch", outside))
    size = context_bytes(kept(request), context=resolved.max_model_len, batch=resolved.batched_tokens,
                         slots=request.context_slots)  # fmt: skip
    whole = context_bytes(replace(kept(request), window_tokens=10**9), context=resolved.max_model_len,
                          batch=resolved.batched_tokens, slots=request.context_slots)  # fmt: skip
    return Pool(lines, Estimate(size, size * 0.998, max(size, whole) * 1.002, "as large as the context asks"), peak)


def _peak(request: Request, era: Era, resolved: Settings) -> Peak:
    if not request.gpu.may_be_nvidia:
        era = replace(era, sampler_least=0.0)  # FlashInfer is CUDA's
    return activation_peak(
        request.model, request.layout, era, tokens=resolved.batched_tokens, sequences=resolved.max_num_seqs,
        text_only=request.text_only, split_k=era.split_k if "int4" in request.scheme.name else 0,
        fewer=_FEWER if "max_num_seqs" in request.soft else 1.0,
    )  # fmt: skip


_RULES: Final[Mapping[Rule, Callable[[Request, Era, Settings, Weights], Pool]]] = MappingProxyType(
    {
        "share_of_total": _share_of_total, "share_after_load": _share_after_load, "share_of_free": _share_of_free,
        "fixed_context": _fixed_context,
    }
)  # fmt: skip


def pool(request: Request, era: Era, resolved: Settings) -> Pool:
    """The KV pool by the engine's rule; ``size`` is None where the card's memory is not known."""
    return _RULES[request.engine.rule](request, era, resolved, engine_weights(request))


def capacity(request: Request, era: Era, resolved: Settings, pool_bytes: float) -> Capacity:
    """What a pool of this many bytes holds, counted as the engine counts."""
    one, length = kept(request), resolved.max_model_len
    if request.engine.rule == "fixed_context":
        return Capacity(length, float(request.context_slots), pool_bytes, 1)
    if request.engine.rule != "share_of_total":
        share = SGLANG_WINDOW_SHARE if era.hybrid and one.window else 1.0
        return by_tokens(one, pool_bytes, length=length, block_tokens=resolved.block_tokens, window_share=share)
    if not era.hybrid or not (one.state or (one.window and one.full)):
        if one.state and not one.full:
            return grouped(one, pool_bytes, length=length, block_tokens=resolved.block_tokens,
                           step_tokens=resolved.batched_tokens, state_slots=1, by_concurrency=True)  # fmt: skip
        return uniform(one, pool_bytes, length=length, block_tokens=resolved.block_tokens)
    slots = era.state_slots + (request.draft_tokens or 0)
    return grouped(one, pool_bytes, length=length, block_tokens=resolved.block_tokens,
                   step_tokens=resolved.batched_tokens, state_slots=slots,
                   by_concurrency=era.tokens_by_concurrency)  # fmt: skip
