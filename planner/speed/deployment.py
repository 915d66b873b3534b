"""What is asked for (a model by name, a card, an engine, a layout) turned into the facts that the speed model needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import log
from typing import Any, Final

import yaml

from goodwatch.core.errors import ConfigError
from planner.catalogue import known_model, model_names
from planner.model_facts import ModelFacts, facts_from_config
from planner.quantisation import Scheme, kv_bytes, nearest
from planner.speed.peaks import Peaks, peaks
from planner.speed.work import Work, work
from planner.tensors import Layout, active_params, text_params

#: schemes whose kernels differ, by the class that efficiencies are grouped by
_CLASSES: Final[Mapping[str, str]] = {
    "bf16": "16 bit", "fp8": "fp8", "fp8-mlp-only": "fp8", "int8": "int8", "nvfp4": "nvfp4", "mxfp4": "mxfp4",
}  # fmt: skip
_GIB: Final = 2.0**30
_ALONE: Final = Layout()
_FP8_CACHE: Final = frozenset({"fp8", "nvfp4", "mxfp4", "fp4-experts"})


@dataclass(frozen=True, slots=True)
class Deployment:
    """One engine instance: its ideal times, and the groups whose efficiencies hold for it.

    ``kv_tokens``: tokens of context that the cache holds over all ranks; 0 where the weights leave no room.
    ``engine``, ``family`` (of the card) and ``precision`` are the groups; ``unknown``: facts that were not told or had
    to be taken from elsewhere, in words; ``doubt``: how much wider (in log units, one sigma) they make an answer.
    ``gpus``: cards of the deployment; ``kind``: dense, moe, latent (attention) or recurrent; ``draft``: it speculates;
    ``max_running``: requests at once that its flags allow; ``flag_rate``: what its flags do to the rate of a burst;
    ``nightly``: it is no release.
    """

    work: Work
    kv_tokens: float
    engine: str
    release: tuple[int, ...]
    family: str
    precision: str
    layout: Layout
    gpus: int
    unknown: tuple[str, ...] = ()
    doubt: float = 0.0
    card: str = ""
    kind: str = "dense"
    draft: bool = False
    max_running: int | None = None
    flag_rate: float = 1.0
    nightly: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A deployment as people name it. ``params``, ``active``: of the model, where its name may be unknown."""

    model: str
    precision: str
    gpu: str
    gpu_count: int
    engine: str
    engine_version: str = ""
    layout: Layout = _ALONE
    kv_dtype: str | None = None
    params: float | None = None
    active: float | None = None
    flags: str = ""


@cache
def _known() -> Mapping[str, Any]:
    text = (files("planner") / "speed" / "models.yaml").read_text(encoding="utf-8")
    found: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return found


@cache
def model_of(name: str, params: float | None, active: float | None) -> tuple[ModelFacts, str, float]:
    """Facts of a model by name; else of the nearest one by its parameters.

    Returns
    -------
    tuple
        Facts; what had to be taken for granted ("" for nothing); the doubt that comes with it (one sigma, log units).

    Raises
    ------
    ConfigError
        The name is not known, and its parameters were not told either.
    """
    table = _known()
    if name in table["rows"]:
        return facts_from_config(name, table["rows"][name], "model card"), "", 0.0
    if name in table["like"]:
        return known_model(table["like"][name]), f"{name} is sized as {table['like'][name]}", 0.03
    try:
        return known_model(name), "", 0.0
    except ConfigError:
        bare = re.sub(r"^[^/]*/|-(FP8|AWQ|GPTQ|INT8|INT4|NVFP4|FP4|GGUF)$", "", name, flags=re.IGNORECASE)
        try:
            return known_model(bare), f"{name} is sized as {bare}", 0.02
        except ConfigError:
            if not params:
                raise
    return _stand_in(name, params, active or params)


def _stand_in(name: str, params: float, active: float) -> tuple[ModelFacts, str, float]:
    """The catalogue's model nearest in total and active parameters."""
    best: tuple[float, ModelFacts] | None = None
    for other in model_names():
        try:
            facts = known_model(other)
        except ConfigError:  # rows without sizes
            continue
        gap = abs(log(text_params(facts) / params)) + abs(log(active_params(facts) / active))
        if best is None or gap < best[0]:
            best = (gap, facts)
    if best is None or best[0] > log(4):
        raise ConfigError(f"model {name}: unknown, and no known model is near its size; give its config.json")
    return best[1], f"the layers of {name}; taken as those of {best[1].name}", 0.15 + best[0]


def scheme_of(name: str, model_name: str, flags: str = "") -> tuple[Scheme, str]:
    """The scheme of the weights, and what was taken for granted."""
    told = re.sub(r"-unverified$", "", name.casefold())
    if told in ("bf16", "fp16"):
        if re.search(r"-fp8\b", flags, re.IGNORECASE):
            return nearest("fp8")[0], "the flags name an fp8 checkpoint"
        if re.search(r"w8a8", flags, re.IGNORECASE):
            return nearest("int8")[0], "the flags name an int8 checkpoint"
        for part, kind in _known()["native"].items():
            if part in model_name or part in flags:
                return nearest(kind)[0], f"{model_name} is published in {kind}; taken as that"
    if told == "fp4" and "gpt-oss" in model_name:
        return nearest("mxfp4")[0], ""
    return nearest(told)


def flag_rate(flags: str, engine: str, precision: str, version: tuple[int, ...]) -> float:
    """What flags and kernels do to the rate of a saturated engine, from A/B runs (``models.yaml``, effects)."""
    words = f"{engine} {'.'.join(map(str, version))} {precision} {flags}"
    rate = 1.0
    for row in _known()["effects"]:
        if re.search(row["when"], words):
            rate *= float(row["rate"])
    return rate


def _kind(facts: ModelFacts) -> str:
    if facts.mla is not None:
        return "latent"
    return "recurrent" if facts.state is not None else "moe" if facts.moe is not None else "dense"


def _free(engine: str, memory_bytes: float, weights_bytes: float) -> float:
    """Bytes left for the KV cache under the engine's usual share; the VRAM ledger has the exact rule and its flags."""
    if engine == "tensorrt-llm":
        return 0.9 * (memory_bytes - weights_bytes - _GIB)
    return (0.88 if engine == "sglang" else 0.9) * memory_bytes - weights_bytes - 2 * _GIB


def deployment(asked: Named) -> Deployment:
    """What is known of a deployment that was named.

    Raises
    ------
    ConfigError
        Model, card or precision cannot be resolved; a layout that does not fit the cards or the model.
    """
    facts, taken, doubt = model_of(asked.model, asked.params, asked.active)
    scheme, how = scheme_of(asked.precision, asked.model, asked.flags)
    found = built(facts, scheme, peaks(asked.gpu), asked)
    unknown = (*(one for one in (taken, how) if one), *found.unknown)
    return replace(found, unknown=unknown, doubt=found.doubt + doubt)


def built(facts: ModelFacts, scheme: Scheme, card: Peaks, asked: Named) -> Deployment:
    """The same of facts that are at hand; ``asked`` gives engine, layout, type of the cache and flags, its names are not read.

    Raises
    ------
    ConfigError
        A layout that does not fit the model.
    """
    layout, engine = asked.layout, asked.engine
    unknown, doubt = [*facts.unknown], 0.0
    if card.doubtful:
        unknown.append(f"the peaks of {card.name} are of low confidence")
        doubt += 0.1
    if layout.tp > 1 and facts.heads % layout.tp and facts.state is None:
        raise ConfigError(f"tp {layout.tp}: does not divide the {facts.heads} attention heads of {facts.name}")
    if facts.moe is None and layout.ep > 1:
        layout = replace(layout, ep=1)
    if asked.kv_dtype is None:
        cached = 1.0 if scheme.name in _FP8_CACHE and engine == "tensorrt-llm" else 2.0
        unknown.append("the type of the KV cache")
    else:
        cached = kv_bytes(asked.kv_dtype)
    done = work(facts, scheme, card, layout, cached)
    kv_tokens = (
        max(0.0, _free(engine, card.memory_bytes, done.weights_bytes)) / max(1.0, done.kv_token_bytes) * layout.dp
    )
    if kv_tokens <= 0:
        unknown.append("whether it fits: weights leave no room for a KV cache")
        doubt += 0.3
    release = (
        tuple(int(p) for p in re.findall(r"\d+", re.sub(r"rc.*", "", asked.engine_version))[:2])
        if re.match(r"v?\d", asked.engine_version)
        else ()
    )
    if not release:
        unknown.append(f"the version of {engine}")
    return Deployment(
        done, kv_tokens, engine, release, card.family, _CLASSES.get(scheme.name, "4 bit"), layout, asked.gpu_count, tuple(unknown), doubt,
        card.name, _kind(facts), bool(re.search(r"speculative", asked.flags)), None,
        flag_rate(asked.flags, engine, asked.precision, release),
        "nightly" in asked.engine_version,
    )  # fmt: skip
