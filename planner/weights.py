"""Bytes of weights on the fullest rank, by class of tensor, as an engine's log gives them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from planner.estimate import Estimate
from planner.model_facts import Forward, Mixer, ModelFacts
from planner.quantisation import Scheme
from planner.tensors import Layout, Tensor, layer_tensors, outer_tensors, text_params

MIB: Final = 2**20

# PyTorch's caching allocator (c10/cuda/CUDACachingAllocator): large requests come from segments of 20 MiB, or of their
# own size in steps of 2 MiB from 10 MiB on; what is left of a segment is split off only above 1 MiB.
_SMALL, _OWN_SEGMENT, _SEGMENT, _STEP, _GRAIN = MIB, 10 * MIB, 20 * MIB, 2 * MIB, 512


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of one rank.

    ``bytes_by_class``: classes of ``planner.quantisation.CLASSES``, and ``rotary`` (cached angles), ``padding`` (what
    the allocator cannot hand out). ``host_bytes``: parts that stay in the host's memory (llama.cpp).
    """

    total: Estimate
    bytes_by_class: Mapping[str, float]
    host_bytes: float = 0.0
    unknown: tuple[str, ...] = ()


def allocated(sizes: Iterable[int]) -> int:
    """Bytes that PyTorch counts as allocated for tensors of these sizes, made in this order and kept."""
    free: list[int] = []
    total = 0
    for size in sizes:
        wanted = -(-size // _GRAIN) * _GRAIN
        if wanted <= _SMALL:
            total += wanted
            continue
        at = bisect_left(free, wanted)
        segment = _SEGMENT if wanted < _OWN_SEGMENT else -(-wanted // _STEP) * _STEP
        block = free.pop(at) if at < len(free) else segment
        if block - wanted > _SMALL:
            insort(free, block - wanted)
            block = wanted
        total += block
    return total


def _bits(tensor: Tensor, scheme: Scheme, *, edge: bool, rich: bool) -> float:
    if tensor.kind == "norm":
        return scheme.norm_bits
    if tensor.kind == "copy" or (edge and scheme.edges_16):
        return 16.0
    bits = scheme.bits.get(tensor.kind, 16.0)
    if rich and scheme.richer is not None:
        return scheme.richer
    if tensor.kind == "head" and scheme.gguf and scheme.richer is not None:
        return max(bits, 6.5625)  # llama.cpp keeps the output at q6_k in K-quant mixtures
    return bits


def _size(tensor: Tensor, scheme: Scheme, bits: float, widening: float = 1.0) -> int:
    columns = tensor.columns
    if tensor.kind == "expert" and scheme.expert_round:
        columns = -(-columns // scheme.expert_round) * scheme.expert_round
    scales = tensor.rows * scheme.row_bytes if tensor.kind in scheme.bits else 0.0
    return round(tensor.rows * columns * bits / 8 * (widening if tensor.kind == "expert" else 1.0) + scales)


def _finer(index: int, count: int) -> bool:
    """Whether a K-quant mixture keeps this layer's down and value projections finer (llama.cpp, use_more_bits)."""
    return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2


def _stage(
    model: ModelFacts, scheme: Scheme, layout: Layout, part: tuple[int, int], widening: float
) -> Iterator[tuple[str, int]]:
    """Class and bytes of every tensor of the layers ``[part)`` on one rank."""
    count = len(model.layers)
    for index in range(*part):
        mixer, forward = model.layers[index]
        rich = _finer(index, count) and scheme.richer is not None
        for tensor in layer_tensors(model, mixer, forward, layout):
            finer = rich and tensor.rich and tensor.kind != "attention"
            bits = _bits(tensor, scheme, edge=index in (0, count - 1), rich=finer)
            if rich and tensor.rich and tensor.kind == "attention":
                values = max(1, model.kv_heads // layout.tp) * model.head_dim
                yield tensor.kind, round(values * model.hidden * (scheme.richer or 0) / 8)
                tensor = Tensor(tensor.kind, tensor.rows - values, tensor.columns)  # noqa: PLW2901
            yield tensor.kind, _size(tensor, scheme, bits, widening)


def _stages(count: int, pp: int) -> Iterator[tuple[int, int]]:
    """Layers of each pipeline stage; the rest of an uneven cut goes to the stages before the last."""
    base, rest = divmod(count, pp)
    start = 0
    for stage in range(pp):
        more = 1 if pp - 1 - rest <= stage < pp - 1 and rest else 0
        end = count if stage == pp - 1 else start + base + more
        yield start, end
        start = end


@lru_cache(maxsize=1024)
def weights(
    model: ModelFacts, scheme: Scheme, layout: Layout, *, pytorch: bool = True, expert_rows: int = 1
) -> Weights:
    """Weights of the rank that holds most.

    Parameters
    ----------
    model, scheme, layout
        What is loaded and how it is cut.
    pytorch
        Whether PyTorch's allocator holds them (its rounding is in what vLLM prints); else plain sums, with the token
        embedding on the host (llama.cpp).
    expert_rows
        Multiple to which a 4-bit kernel pads the experts' own width.

    Returns
    -------
    Weights
        Bytes; the interval covers checkpoints of one scheme that differ, and facts that were not given.
    """
    counted = text_params(model)
    if model.total_params and _structure_unknown(model, counted):
        return _by_total(model, scheme, layout)
    widening = _widening(model, scheme, layout, expert_rows)
    ranks = [
        _rank(model, scheme, layout, part, pytorch=pytorch, widening=widening)
        for part in _stages(len(model.layers), layout.pp)
    ]
    sizes = [sum(by_class.values()) for by_class, _ in ranks]
    by_class, host = ranks[sizes.index(max(sizes))]
    size = _interval(by_class, scheme, model)
    lightest = size.low - (max(sizes) - min(sizes))  # a log may be of any stage
    return Weights(replace(size, low=lightest), by_class, host, model.unknown)


def _structure_unknown(model: ModelFacts, counted: int) -> bool:
    """Whether the tensors that we can count are clearly not the whole model; image towers and drafts are not text."""
    assert model.total_params is not None
    missing = model.total_params - counted
    if missing < 0:
        return -missing > 0.05 * model.total_params
    return missing > (0.25 if model.vision or model.draft_layers else 0.05) * model.total_params


def _widening(model: ModelFacts, scheme: Scheme, layout: Layout, rows: int) -> float:
    if model.moe is None or not scheme.expert_round:
        return 1.0
    width = model.moe.width if layout.ep > 1 else model.moe.width / layout.tp
    return -(-width // rows) * rows / width


def _rank(
    model: ModelFacts, scheme: Scheme, layout: Layout, part: tuple[int, int], *, pytorch: bool, widening: float
) -> tuple[dict[str, float], float]:
    first, last = part[0] == 0, part[1] == len(model.layers)
    by_class: dict[str, float] = {}
    sizes: list[int] = []
    host = 0
    for tensor in outer_tensors(model, layout.tp, first=first, last=last):
        size = _size(tensor, scheme, _bits(tensor, scheme, edge=False, rich=False))
        if tensor.kind == "embedding" and not pytorch and not model.tied:
            host += size
            continue
        if tensor.kind == "embedding" and not pytorch:
            host += size  # a tied embedding is held twice: on the host, and on the device as the output
        by_class[tensor.kind] = by_class.get(tensor.kind, 0) + size
        sizes.append(size)
    for kind, size in _stage(model, scheme, layout, part, widening):
        if kind == "copy" and not pytorch:
            continue
        by_class[kind] = by_class.get(kind, 0) + size
        sizes.append(size)
    if not pytorch:
        return by_class, float(host)
    if first and model.vision:
        by_class["vision"] = vision_params(model) * 2 / layout.tp
    if model.shape.rotary and model.full_layers:
        by_class["rotary"] = 2.0 * model.max_positions * model.rotary_dim
    by_class["padding"] = float(allocated(sizes) - sum(sizes))
    return by_class, 0.0


def vision_params(model: ModelFacts) -> float:
    """Parameters of the image encoder: what the text and draft layers leave of the total, or by its sizes."""
    if model.vision is None:
        return 0.0
    layers, hidden = model.vision
    by_size = 12.0 * layers * hidden * hidden * 1.1
    if model.total_params is None:
        return by_size
    left = model.total_params - text_params(model) - draft_params(model)
    return left if 0.3 * by_size < left < 4 * by_size else by_size


def draft_params(model: ModelFacts) -> float:
    """Parameters of the multi-token-prediction layers that come with the model; 0 without any."""
    if not model.draft_layers:
        return 0.0
    forward: Forward = "moe" if model.moe else "dense"
    mixer: Mixer = "full"
    one = sum(t.elements for t in layer_tensors(model, mixer, forward, Layout()) if t.kind != "copy")
    return float(model.draft_layers * (one + 2 * model.hidden * model.hidden))


def _by_total(model: ModelFacts, scheme: Scheme, layout: Layout) -> Weights:
    """Weights by the number of parameters alone: the shares of the classes are not known, so the interval is wide."""
    assert model.total_params is not None
    outer = sum(t.elements for t in outer_tensors(model, 1, first=True, last=True))
    inner = max(0.0, model.total_params - outer)
    bits = max(scheme.bits.get("dense", 16.0), scheme.bits.get("expert", 16.0))
    least = min(scheme.bits.values(), default=16.0)
    ranks = layout.tp * layout.pp
    point = (outer * 2 + inner * bits / 8) / ranks
    low, high = (outer * 2 + inner * least / 8) / ranks * 0.98, point * 1.12
    basis = "number of parameters; which tensors stay at 16 bit is not known"
    unknown = (*model.unknown, "the model's tensors")
    return Weights(Estimate(point, min(low, point), high, basis), {"dense": point}, 0.0, unknown)


def _interval(by_class: Mapping[str, float], scheme: Scheme, model: ModelFacts) -> Estimate:
    point = float(sum(by_class.values()))
    quantised = sum(size for kind, size in by_class.items() if kind in scheme.bits)
    low = point - quantised * (1 - scheme.low) - 0.003 * point
    high = point + quantised * (scheme.high - 1) + 0.004 * point
    if model.vision:  # encoders are not counted tensor by tensor
        low, high = low - 0.3 * by_class.get("vision", 0.0), high + 0.3 * by_class.get("vision", 0.0)
    basis = f"tensor by tensor, {scheme.name}" + (f" ({scheme.source})" if scheme.bits else "")
    return Estimate(point, low, high, basis)
