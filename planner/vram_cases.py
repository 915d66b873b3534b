"""Starts described as cases (facts of a public log) turned into requests, and ledgers turned into plain rows.

A case's observed figures are never read: only engine, model, layout, card, arguments, and the list of what was deduced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from goodwatch.core.errors import ConfigError
from planner.budget import EngineBudget
from planner.catalogue import known_model
from planner.estimate import Estimate, exactly
from planner.gpu import Gpu, find, visible
from planner.ledger import ledger
from planner.pools import LORA_RANK
from planner.quantisation import kv_bytes, nearest
from planner.tensors import Layout
from planner.version import parsed
from planner.vram import GIB, Ledger, Request, deployed

#: outcome where nothing can be sized: what most starts come to (53 of 64 public logs); never called certain
PRIOR: Final = "ok"
_PRIOR_WORDS: Final = "most starts succeed, and nothing here speaks for or against this one"
#: cards of one machine
_NODE: Final = 8
#: plain "V1" is written where both generations exist: 0.8 to 0.11
_PLAIN_V1: Final = (0, 11)
#: marketed sizes that only cards with stacked memory have
_HBM_GB: Final = frozenset({40.0, 80.0, 94.0, 141.0, 180.0, 192.0})
#: names that say a size and no card
_GENERIC: Final = re.compile(r"class|unknown|/|\(|\b(GPUs?|GeForce|accelerator|XPU|NPU|Metal)\b", re.IGNORECASE)
#: names of one argument over the engines, by our field
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "fraction": ("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction"),
    "max_model_len": ("max_model_len", "context_len", "n_ctx"),
    "max_num_seqs": ("max_num_seqs", "max_running_requests"),
    "batched_tokens": ("max_num_batched_tokens", "chunked_prefill_size", "n_ubatch"),
    "block_tokens": ("block_size",),
}


def request_of_case(case: Mapping[str, Any], engines: Mapping[str, EngineBudget], cards: Iterable[Gpu]) -> Request:
    """The request that a case describes.

    Parameters
    ----------
    case
        One item of a case file: ``engine``, ``model``, ``parallel``, ``gpu``, ``args``, ``inferred``.
    engines, cards
        The tables that are known.

    Raises
    ------
    ConfigError
        An engine, model, scheme or argument that goodwatch does not know; the message starts with the case's id.
    """
    try:
        return _request(case, engines, cards)
    except ConfigError as error:
        raise ConfigError(f"{case.get('id', 'case without id')}: {error}") from error


def _request(case: Mapping[str, Any], engines: Mapping[str, EngineBudget], cards: Iterable[Gpu]) -> Request:
    told, parallel, args = case["engine"], case.get("parallel", {}), case.get("args", {})
    engine = engines.get(told["name"])
    if engine is None:
        raise ConfigError(f"engine {told['name']}: unknown; known are {', '.join(sorted(engines))}")
    text = str(told.get("version", ""))
    inferred = [str(one) for one in case.get("inferred", [])]
    layout = Layout(_count(parallel, "tp"), _count(parallel, "pp"), 1, _count(parallel, "dp"))
    model = known_model(str(case["model"].get("id")))
    if "parallel.tp" in inferred and layout.tp > _NODE and layout.tp % _NODE == 0:
        layout = Layout(_NODE, layout.pp * layout.tp // _NODE, 1, layout.dp)  # engines advise pipelines between nodes
    version = parsed(text, _PLAIN_V1 if "(V1)" in text and engine.name == "vllm" else engine.newest)
    quant = str(case["model"].get("quant", "auto"))
    if engine.rule == "fixed_context" and not quant.startswith("gguf"):
        quant = "gguf-f16"
    quantised, taken = nearest(quant)
    if taken:
        model = replace(model, unknown=(*model.unknown, taken))
    dtype = str(case["model"].get("kv_dtype", "auto"))
    values: dict[str, Any] = {
        field: _argument(name, args[name]) for field, names in _ARGUMENTS.items() for name in names if name in args
    }
    soft = {"fraction", "max_num_seqs", "max_model_len"} - set(values)
    soft |= {field for field, names in _ARGUMENTS.items() if any(n in inferred for n in names) and field in values}
    lora = LORA_RANK if args.get("lora") else None
    return Request(
        model, _card(case.get("gpu", {}), cards, inferred), engine, version,
        quantised, kv_bytes(dtype), dtype, deployed(engine, model, layout), **values,
        eager=bool(args.get("enforce_eager")), lora_rank=lora, draft_tokens=3 if args.get("speculative") else None,
        soft=frozenset(soft | ({"lora_rank"} if lora else set())),
    )  # fmt: skip


def _argument(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"args.{name}: {value!r} is not a number")
    return value


def _count(parallel: Mapping[str, Any], key: str) -> int:
    value = parallel.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"parallel.{key}: {value!r} is not a count")
    return value


def _card(told: Mapping[str, Any], cards: Iterable[Gpu], inferred: Iterable[str]) -> Gpu:
    """The card of a case: its reported memory where told, else by its name, else by its marketed size."""
    name = str(told.get("name", "(unknown)"))
    generic = _GENERIC.search(name) is not None
    found = None if generic else find(name, cards)
    size: Estimate | None = None
    words = re.search(r"(\d+)\+? ?GB", name)
    nominal = told.get("nominal_gb") or (float(words[1]) if words else None)
    if told.get("total_gib"):
        size = exactly(float(told["total_gib"]), "reported by the driver")
    elif found is not None:
        size = found.total_gib
    elif nominal:
        kinds = {"ascend": "ascend", "geforce": "geforce", "rtx": "geforce", "mi3": "amd", "rocm": "amd"}
        other = "hbm" if float(nominal) in _HBM_GB else "other"
        size = visible(float(nominal), next((k for n, k in kinds.items() if n in name.casefold()), other))
        if f"{nominal:g}+" in name:
            size = size.widened(visible(1.2 * float(nominal)))
    named = not generic and "gpu.name" not in [*inferred]
    return Gpu(found.name if found else name, size, nominal, found.vendor if found else "", named=named,
               shared=bool(found and found.shared))  # fmt: skip


def row(found: Ledger) -> dict[str, Any]:
    """A ledger as plain values: GiB and tokens with intervals ``[low, high]``; null is not known."""
    exact = {
        "weights_gib_per_gpu": found.weights.total.scaled(1 / GIB),
        "kv_cache_gib": None if found.pool is None else found.pool.scaled(1 / GIB),
        "kv_tokens": found.tokens,
        "max_concurrency": found.concurrency,
        "activation_peak_gib": _line(found, "activation peak"),
        "non_torch_gib": _line(found, "outside PyTorch"),
    }
    return {
        **{name: None if one is None else round(one.point, 4) for name, one in exact.items()},
        "interval": {
            name: None if one is None else [round(one.low, 4), round(one.high, 4)] for name, one in exact.items()
        },
        "bytes_per_token": found.cache.bytes_per_token,
        "kv_needed_gib": round(found.need_bytes / GIB, 4),
        "outcome": found.outcome,
        "outcome_certain": found.certain,
        "reason": found.reason,
        "unknown": list(found.unknown),
        "risks": list(found.risks),
    }


def _line(found: Ledger, name: str) -> Estimate | None:
    size = next((line.size for line in found.lines if line.name == name), None)
    return None if size is None else size.scaled(1 / GIB)


def evaluate(case: Mapping[str, Any], engines: Mapping[str, EngineBudget], cards: Iterable[Gpu]) -> dict[str, Any]:
    """One case's row, ``id`` first; a case that cannot be sized has nulls and says why in ``reason``."""
    try:
        return {"id": case.get("id"), **row(ledger(request_of_case(case, engines, cards)))}
    except ConfigError as error:
        names = ("weights_gib_per_gpu", "kv_cache_gib", "kv_tokens", "max_concurrency",
                 "activation_peak_gib", "non_torch_gib")  # fmt: skip
        empty = dict.fromkeys(names)
        return {"id": case.get("id"), **empty, "interval": dict.fromkeys(names), "outcome": PRIOR,
                "outcome_certain": False, "reason": f"not sized: {error}; {_PRIOR_WORDS}",
                "unknown": [str(error)], "risks": []}  # fmt: skip
