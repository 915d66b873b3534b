"""How far real engines stay from the roofline: a factor for each term, built from fitted shares of its groups.

The logarithm of a factor is a base value plus one offset for each group that the deployment belongs to (engine, card
family, precision, kind of model, and pairs of them). Offsets were fitted with a pull to zero, so that a group with few
measurements stays near its parents, and a group that was never seen is its parents' value with a wider band.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, log, sqrt
from types import MappingProxyType
from typing import Any, Final

import yaml

from planner.speed.deployment import Deployment

#: groupings and how far (one sigma, log units) a group may lie from its parents
SPREAD: Final[Mapping[str, float]] = MappingProxyType(
    {
        "engine": 0.3, "family": 0.3, "precision": 0.3, "kind": 0.3, "engine|precision": 0.15, "engine|kind": 0.4,
        "card": 0.15, "engine|family|precision": 0.15,
    }
)  # fmt: skip
_FOUR: Final = ("engine", "precision", "kind", "family")
_ALL: Final = tuple(SPREAD)
#: sets of offsets: which groupings each has, and how much wider than ``SPREAD`` they may be
PARTS: Final[Mapping[str, tuple[tuple[str, ...], float]]] = MappingProxyType(
    {
        "launch": (("engine", "family", "kind"), 1.2), "weights": (_FOUR, 1.0), "cache": (_FOUR, 1.0), "arithmetic": (_FOUR, 1.0),
        "decode": (_ALL, 1.0), "prefill": (_ALL, 1.0), "lag": (("engine|kind",), 1.75), "queue": (("engine|kind",), 1.75),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Term:
    """A factor's prior: value, one sigma in log units, and the sets of offsets that act on it."""

    prior: float
    sigma: float
    parts: tuple[str, ...] = ()


#: factors in the order in which ``Factors`` holds them
TERMS: Final[Mapping[str, Term]] = MappingProxyType(
    {
        "fixed_s": Term(1e-3, 1.0, ("launch",)),
        "layer_s": Term(2e-5, 1.0, ("launch",)),
        "exchange_wait_s": Term(1e-5, 1.0, ("launch",)),
        "weights": Term(1.3, 1.0, ("weights", "decode")),
        "cache": Term(1.3, 1.0, ("cache", "decode")),
        "arithmetic": Term(1.0, 1.0, ("arithmetic", "decode")),
        "exchange": Term(2.0, 1.0),
        "prompt": Term(1.3, 1.0, ("prefill",)),
        "pairs": Term(1.5, 1.0, ("prefill",)),
        "prompt_exchange": Term(1.5, 1.0),
        "prompt_fixed_s": Term(1e-4, 1.0, ("launch",)),
        "answer_s": Term(1e-2, 1.0),
        "lag_steps": Term(3.0, 1.0, ("lag",)),
        "queue": Term(0.1, 1.0, ("queue",)),
        "most_running": Term(1500.0, 1.0),
        "burst": Term(1.0, 0.2),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Factors:
    """What the roofline's terms are multiplied by (1 / factor is the achieved share of a peak), and times, seconds.

    ``fixed_s``, ``layer_s``, ``exchange_wait_s``: launching a step, a layer of it, one exchange between ranks;
    ``weights``, ``cache``, ``arithmetic``, ``exchange``: terms of a decode step; ``prompt``, ``pairs``,
    ``prompt_exchange``, ``prompt_fixed_s``: terms of a prompt; ``answer_s``, ``lag_steps``: from arrival to the first
    step and from its end to the client; ``queue``: share of the other prompts that one waits for in a closed loop;
    ``most_running``: requests at once where nothing else limits; ``burst``: share of the steady rate that a whole
    burst reaches. ``sigma``: doubt of groups that were never seen, log units.
    """

    fixed_s: float
    layer_s: float
    exchange_wait_s: float
    weights: float
    cache: float
    arithmetic: float
    exchange: float
    prompt: float
    pairs: float
    prompt_exchange: float
    prompt_fixed_s: float
    answer_s: float
    lag_steps: float
    queue: float
    most_running: float
    burst: float
    sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class Fitted:
    """Logarithms of the factors by term, offsets by "part.grouping.label", and the errors seen in cross-validation.

    ``bands``: kind of load → figure → kind of model ("any" for all) → (low, high): what to add to a figure's
    logarithm for the ends of its 80 % interval. ``labels``: groups that were measured.
    """

    base: Mapping[str, float]
    offsets: Mapping[str, float]
    bands: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]
    told: str = ""


def labels(one: Deployment) -> Mapping[str, str]:
    """The groups of a deployment, by grouping."""
    engine = one.engine
    if engine == "tensorrt-llm" and one.release and one.release < (1, 0):
        engine = "tensorrt-llm before 1.0"  # compiled engines; 1.0 made the PyTorch flow the default
    if one.nightly:
        engine = f"{engine} nightly"  # kernels that no release has, or that are not done
    family = "Blackwell" if one.family == "Blackwell Ultra" else one.family
    return {
        "engine": engine, "family": family, "precision": one.precision, "kind": one.kind,
        "engine|precision": f"{engine}|{one.precision}", "engine|kind": f"{engine}|{one.kind}", "card": one.card,
        "engine|family|precision": f"{engine}|{family}|{one.precision}",
    }  # fmt: skip


def offset_keys(term: Term, groups: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """Keys of the offsets that act on a term, each with its spread."""
    for part in term.parts:
        groupings, wider = PARTS[part]
        for grouping in groupings:
            yield f"{part}.{grouping}.{groups[grouping]}", SPREAD[grouping] * wider


def factors(fitted: Fitted, one: Deployment) -> Factors:
    """The factors of a deployment; groups that were never measured count as their parents and add to ``sigma``."""
    groups = labels(one)
    values = {
        name: exp(fitted.base[name] + sum(fitted.offsets.get(key, 0.0) for key, _ in offset_keys(term, groups)))
        for name, term in TERMS.items()
    }
    unseen = [
        spread
        for key, spread in offset_keys(TERMS["weights"], groups)
        if key.startswith("decode.") and key not in fitted.offsets
    ]
    return Factors(**values, sigma=sqrt(sum(s * s for s in unseen)))


def unseen(fitted: Fitted, one: Deployment) -> tuple[str, ...]:
    """Engine, card family, precision and kind of model that no measurement was taken of, in words."""
    groups = labels(one)
    words = {
        "engine": "engine",
        "family": "cards of the family",
        "precision": "precision",
        "kind": "models of the kind",
    }
    return tuple(
        f"no measurement of {word} {groups[grouping]}"
        for grouping, word in words.items()
        if f"decode.{grouping}.{groups[grouping]}" not in fitted.offsets
    )


@cache
def shipped() -> Fitted:
    """The efficiencies that come with goodwatch; ``tools/fit_speed.py`` fits them again."""
    text = (files("planner") / "speed" / "efficiency.yaml").read_text(encoding="utf-8")
    found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both loaders are safe
    return fitted_of(found)


def fitted_of(found: Mapping[str, Any]) -> Fitted:
    """Efficiencies from the content of their file."""
    offsets = {
        f"{part}.{grouping}.{label}": float(value)
        for part, by_grouping in found["offsets"].items()
        for grouping, by_label in by_grouping.items()
        for label, value in by_label.items()
    }
    bands = {
        load: {
            figure: {kind: (float(b[0]), float(b[1])) for kind, b in kinds.items()} for figure, kinds in figures.items()
        }
        for load, figures in found["bands"].items()
    }
    base = {name: log(float(value)) for name, value in found["base"].items()}
    return Fitted(base, offsets, bands, str(found.get("told", "")))
