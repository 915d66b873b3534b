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
#: sizes that are no card's and no setting's
_MOST_GIB: Final = 100_000
_ABSURD: Final = 10**12
#: how far marketed sizes of one card may be apart ("B200" is sold as 180 and 192 GB)
_NEAR: Final = 0.08
#: how far they are apart at least where one name stands for two cards
_APART: Final = 1.5
#: engines' names as people write them
_ENGINES: Final[Mapping[str, str]] = {
    "trt-llm": "tensorrt-llm", "trtllm": "tensorrt-llm", "tensorrtllm": "tensorrt-llm", "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp", "llama.cpp-server": "llama.cpp", "sglang-runtime": "sglang",
}  # fmt: skip
#: flags whose name in ``args`` is another
_SPELLED: Final[Mapping[str, str]] = {
    "context_length": "context_len", "ctx_size": "n_ctx", "ubatch_size": "n_ubatch", "enable_lora": "lora",
    "speculative_config": "speculative",
}  # fmt: skip
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
    told, parallel, args = (_mapping(case, name) for name in ("engine", "parallel", "args"))
    asked = _mapping(case, "model")
    engine = engines.get(_engine_name(told.get("name")))
    if engine is None:
        raise ConfigError(f"engine {told.get('name')}: unknown; known are {', '.join(sorted(engines))}")
    text = str(told.get("version") or "")
    listed = case.get("inferred")
    inferred = [str(one) for one in listed] if isinstance(listed, list) else []
    layout = Layout(_count(parallel, "tp"), _count(parallel, "pp"), 1, _count(parallel, "dp"))
    model = known_model(_text(asked, "id", ""))
    if "parallel.tp" in inferred and layout.tp > _NODE and layout.tp % _NODE == 0:
        layout = Layout(_NODE, layout.pp * layout.tp // _NODE, 1, layout.dp)  # engines advise pipelines between nodes
    version = parsed(text, _PLAIN_V1 if "(V1)" in text and engine.name == "vllm" else engine.newest)
    quant = _text(asked, "quant", "auto")
    if engine.rule == "fixed_context" and not quant.startswith("gguf"):
        quant = "gguf-f16"
    quantised, taken = nearest(quant)
    if taken:
        model = replace(model, unknown=(*model.unknown, taken))
    dtype = _text(asked, "kv_dtype", "auto")
    values: dict[str, Any] = {
        field: _argument(name, args[name], whole=field != "fraction")
        for field, names in _ARGUMENTS.items()
        for name in names
        if args.get(name) is not None
    }
    soft = {"fraction", "max_num_seqs", "max_model_len"} - set(values)
    soft |= {field for field, names in _ARGUMENTS.items() if any(n in inferred for n in names) and field in values}
    lora = LORA_RANK if args.get("lora") else None
    return Request(
        model, _card(_mapping(case, "gpu"), cards, inferred), engine, version,
        quantised, kv_bytes(dtype), dtype, deployed(engine, model, layout), **values,
        eager=bool(args.get("enforce_eager")), lora_rank=lora, draft_tokens=3 if args.get("speculative") else None,
        soft=frozenset(soft | ({"lora_rank"} if lora else set())),
    )  # fmt: skip


def _mapping(case: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a case: empty where it is missing, null or "".

    ``args`` may be a command line, as one text or a list of words; a name or a size alone stands for its part.
    """
    told = case.get(name)
    if told is None or told == "":
        return {}
    if name == "args" and isinstance(told, str | list):
        return _command_line(told)
    alone = {"engine": "name", "model": "id", "gpu": "name"}.get(name)
    if isinstance(told, str) and alone:
        return {alone: told}
    if not isinstance(told, Mapping):
        raise ConfigError(f"{name}: {told!r} is no mapping")
    return told


def _command_line(told: str | list[Any]) -> dict[str, Any]:
    """Flags of a command line by the names of a case's ``args``; a flag without a value is True."""
    words = [str(one) for one in told] if isinstance(told, list) else told.split()
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    found: dict[str, Any] = {}
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        after = words[at + 1] if at + 1 < len(words) else "--"
        name = word[2:].replace("-", "_")
        found[_SPELLED.get(name, name)] = True if after.startswith("--") else _value(after)
    return found


def _value(word: str) -> object:
    try:
        return float(word) if not word.isdecimal() else int(word)
    except ValueError:
        return word


def _engine_name(told: object) -> str:
    """The engine's name in our spelling: "SGLang", "TRT-LLM" and "tensorrt_llm" are known too."""
    name = re.sub(r"[\s_]+", "-", str(told or "").strip().casefold())
    return _ENGINES.get(name, name)


def _text(told: Mapping[str, Any], key: str, default: str) -> str:
    value = told.get(key)
    if value is None or value == "":
        return default
    if not isinstance(value, str):
        raise ConfigError(f"model.{key}: {value!r} is not a name")
    return value


def _argument(name: str, value: object, *, whole: bool) -> float:
    """A number of the arguments; a text that is one counts. ``whole``: a count, with "8k" and "128K" as engines read them."""
    if isinstance(value, str) and (found := re.fullmatch(r"\s*([0-9.]+)\s*([kKmM]?)\s*", value)):
        step = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}[found[2]]
        value = _value(found[1])
        value = value * step if isinstance(value, int | float) else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _ABSURD:
        raise ConfigError(f"args.{name}: {value!r} is not a number")
    if whole and value != int(value):
        raise ConfigError(f"args.{name}: {value!r} is not a count")
    return int(value) if whole else value


def _count(parallel: Mapping[str, Any], key: str) -> int:
    value = parallel.get(key)
    if value is None or value == "":
        return 1
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"parallel.{key}: {value!r} is not a count")
    return value


def _size(told: Mapping[str, Any], key: str) -> float | None:
    """A memory size of a card; None where it is not told."""
    value = told.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST_GIB:
        raise ConfigError(f"gpu.{key}: {value!r} is not a size above 0 and at most {_MOST_GIB:,}")
    return float(value)


def _card(told: Mapping[str, Any], cards: Iterable[Gpu], inferred: Iterable[str]) -> Gpu:
    """The card of a case: its reported memory where told, else by its name, else by its marketed size."""
    name, known = str(told.get("name") or "(unknown)"), [*cards]
    generic = _GENERIC.search(name) is not None
    words = re.search(r"(\d+)\+? ?GB", name)
    total, nominal = _size(told, "total_gib"), _size(told, "nominal_gb") or (float(words[1]) if words else None)
    found = None if generic else _found(name, nominal, known)
    size: Estimate | None = None
    if total:
        size = exactly(total, "reported by the driver")
    elif found is not None:
        size = found.total_gib
        for other in known if not nominal else ():
            if size and other.total_gib and _other_size(found, other) and find(name, [other]):
                size = size.widened(other.total_gib)
    elif nominal:
        kinds = {"ascend": "ascend", "geforce": "geforce", "rtx": "geforce", "mi3": "amd", "rocm": "amd"}
        plain = "hbm" if nominal in _HBM_GB else "other"
        size = visible(nominal, next((k for n, k in kinds.items() if n in name.casefold()), plain))
        if f"{nominal:g}+" in name:
            size = size.widened(visible(1.2 * nominal))
    named = not generic and "gpu.name" not in [*inferred]
    return Gpu(found.name if found else name, size, nominal, found.vendor if found else "", named=named,
               shared=bool(found and found.shared))  # fmt: skip


def _other_size(one: Gpu, other: Gpu) -> bool:
    """Whether a card of the same name is sold with quite another memory ("A100": 40 and 80 GB)."""
    return not 1 / _APART < (other.nominal_gb or 0.0) / (one.nominal_gb or 1.0) < _APART


def _found(name: str, nominal_gb: float | None, known: list[Gpu]) -> Gpu | None:
    """The catalogue's card of this name and marketed size; a row of another size is another card."""
    if nominal_gb is None:
        return find(name, known)
    exact = find(f"{name} {nominal_gb:g}GB", known) or find(name, known)
    if exact is None or exact.nominal_gb is None or abs(exact.nominal_gb - nominal_gb) > _NEAR * nominal_gb:
        return None
    return exact


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
        return {"id": case.get("id"), **empty, "interval": dict.fromkeys(names), "bytes_per_token": None,
                "kv_needed_gib": None, "outcome": PRIOR, "outcome_certain": False, "reason": f"not sized: {error}; {_PRIOR_WORDS}",
                "unknown": [str(error)], "risks": []}  # fmt: skip
