"""How each engine counts its ranks: one neutral layout (tp x pp x dp ranks, ep of them share experts), five ways to say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.configure.values import Configuration
from planner.flags import EngineFlags, LayoutStyle

#: settings of a table that are not fields of a configuration, by what they come from
Words = dict[str, object]


def _apart(one: Configuration) -> Words:
    """vLLM: tp and dp multiply; expert parallel is a switch over all of tp x dp."""
    shared = (one.tp or 1) * (one.dp or 1)
    if one.ep is not None and one.ep not in (1, shared):
        raise ConfigError(
            f"ep {one.ep}: {one.engine} shares the experts over all tp x dp = {shared} ranks, or not at all"
        )
    return {"tp": one.tp, "pp": one.pp, "dp": one.dp, "expert_parallel": None if one.ep is None else one.ep > 1}


def _from_apart(words: Mapping[str, object]) -> Words:
    shared = _whole(words.get("tp")) * _whole(words.get("dp"))
    on = words.get("expert_parallel")
    return {**_kept(words, "tp", "pp", "dp"), **({"ep": shared} if on is True else {})}


def _inside(one: Configuration) -> Words:
    """SGLang: with shared experts, attention's data parallel ranks are inside the tensor-parallel group."""
    if one.dp and one.dp > 1 and one.ep and one.ep > 1:
        return {"tp": (one.tp or 1) * one.dp, "pp": one.pp, "attention_dp": one.dp, "ep": one.ep}
    return {"tp": one.tp, "pp": one.pp, "dp": one.dp, "ep": one.ep}


def _from_inside(words: Mapping[str, object]) -> Words:
    inner = words.get("attention_dp")
    kept = _kept(words, "tp", "pp", "dp", "ep")
    if inner is None:
        return kept
    ranks, groups = _whole(words.get("tp")), _whole(inner)
    if ranks % groups:
        raise ConfigError(f"attention's data parallel {groups} does not divide the {ranks} tensor-parallel ranks")
    kept.pop("tp", None)
    return {**kept, **({"tp": ranks // groups} if ranks > groups else {}), "dp": groups}


def _all(one: Configuration) -> Words:
    """TensorRT-LLM: attention is cut over all ranks, or repeated on all of them."""
    if one.dp and one.dp > 1:
        if one.tp and one.tp > 1:
            raise ConfigError(
                f"tp {one.tp} with dp {one.dp}: {one.engine} repeats attention on every rank or on none; tp 1, or replicas"
            )
        return {"tp": one.dp, "pp": one.pp, "ep": one.ep, "attention_dp": True}
    return {"tp": one.tp, "pp": one.pp, "ep": one.ep}


def _from_all(words: Mapping[str, object]) -> Words:
    kept = _kept(words, "tp", "pp", "ep")
    if words.get("attention_dp") is True and "tp" in kept:
        kept["dp"] = kept.pop("tp")
    return kept


def _split(one: Configuration) -> Words:
    """llama.cpp: cards share rows (tp) or layers (pp); the context is that of all slots together."""
    tp, pp = one.tp or 1, one.pp or 1
    if (tp > 1 and pp > 1) or (one.dp or 1) > 1 or (one.ep or 1) > 1:
        raise ConfigError("llama.cpp splits rows (tp) or layers (pp) over cards, not both; dp and ep: use replicas")
    words: Words = {}
    if tp * pp > 1:
        words |= {"split": "row" if tp > 1 else "layer", "shares": ",".join(["1"] * (tp * pp))}
    if one.max_model_len is not None:
        words["context"] = one.max_model_len * (one.max_num_seqs or 1)
    return words


def _from_split(words: Mapping[str, object]) -> Words:
    found: Words = {}
    cards = len(str(words["shares"]).split(",")) if words.get("shares") else 1
    if cards > 1:
        found["tp" if words.get("split") == "row" else "pp"] = cards
    if words.get("context"):
        found["max_model_len"] = _whole(words["context"]) // _whole(words.get("max_num_seqs"))
    return found


def _tensor_only(one: Configuration) -> Words:
    """LMDeploy: tensor parallel; its data and expert parallel need a proxy and one process a rank, which is not written."""
    for name, size in (("pp", one.pp), ("dp", one.dp), ("ep", one.ep)):
        if size is not None and size > 1:
            raise ConfigError(
                f"{name} {size}: not written for {one.engine}; use tp, or replicas behind a load balancer"
            )
    return {"tp": one.tp}


def _from_tensor_only(words: Mapping[str, object]) -> Words:
    return _kept(words, "tp")


_WRITE: Final[Mapping[LayoutStyle, Callable[[Configuration], Words]]] = MappingProxyType(
    {"apart": _apart, "inside": _inside, "whole": _all, "split": _split, "tensor_only": _tensor_only}
)
_READ: Final[Mapping[LayoutStyle, Callable[[Mapping[str, object]], Words]]] = MappingProxyType(
    {"apart": _from_apart, "inside": _from_inside, "whole": _from_all, "split": _from_split, "tensor_only": _from_tensor_only}
)  # fmt: skip
_LAYOUT: Final = ("tp", "pp", "dp", "ep")
_HELD: Final = (*_LAYOUT, "expert_parallel", "attention_dp", "split", "shares", "context")
#: not written as flags: where the server runs and how many there are
_AROUND: Final = (
    "engine",
    "engine_version",
    "model",
    "gpu",
    "gpu_count",
    "replicas",
    "prefill_replicas",
    "decode_replicas",
    "extra",
)


def words(one: Configuration, table: EngineFlags) -> Words:
    """What is told of a configuration in the engine's own terms: setting of the table → value, in the table's order.

    Raises
    ------
    ConfigError
        A layout that this engine cannot have.
    """
    layout = _WRITE[table.layout](one)
    told = {name: value for name, value in one.told().items() if name not in (*_AROUND, *_LAYOUT)}
    if "context" in layout:
        told.pop("max_model_len", None)
    return {name: value for name, value in (layout | told).items() if value is not None}


def fields_of(found: Mapping[str, object], table: EngineFlags) -> Words:
    """Fields of a configuration from the engine's terms; the reverse of ``words``."""
    rest = {name: value for name, value in found.items() if name not in _HELD}
    return rest | _READ[table.layout](found)


def neutral(one: Configuration) -> Configuration:
    """The same configuration with a layout of one rank left out, so that "1" and "not told" compare equal."""
    ones = {name: None if getattr(one, name) == 1 else getattr(one, name) for name in _LAYOUT}
    return replace(one, tp=ones["tp"], pp=ones["pp"], dp=ones["dp"], ep=ones["ep"])


def _kept(words: Mapping[str, object], *names: str) -> Words:
    return {name: words[name] for name in names if words.get(name) is not None}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 1
