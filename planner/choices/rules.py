"""Choices read from tables: rows that fit, in order, each with its reason, source and date. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from goodwatch.core.errors import ConfigError
from planner.gpu import Gpu


@dataclass(frozen=True, slots=True)
class Weights:
    """A quantisation that suits a card: scheme (``planner.quantisation``), type of the KV cache, and why."""

    name: str
    scheme: str
    kv_dtype: str
    goal: str
    reason: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine that suits a load; ``also``: what to try beside it."""

    name: str
    engine: str
    also: tuple[str, ...]
    reason: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class Vendor:
    """What a maker's cards are called: Kubernetes resource, Compose driver, or the device paths that are handed in."""

    name: str
    kubernetes: str
    compose: str
    devices: tuple[str, ...]
    each: str
    notes: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Load:
    """What is known of a load; ``None`` is "not known" and fits no row that asks for it.

    ``shared_ratio``: input tokens that begin as an earlier request did, 0 to 1; ``concurrency``: requests at once in one
    replica; ``place``: server or edge; ``wish``: what the operator has at hand, such as "awq".
    """

    shared_ratio: float | None = None
    concurrency: float | None = None
    place: str = "server"
    wish: str = ""


def quantisations(gpu: Gpu, engine: str = "vllm", goal: str = "quality") -> tuple[Weights, ...]:
    """Schemes for a card, best first; empty where no row is known.

    Parameters
    ----------
    gpu
        The card; its vendor and capability decide.
    engine
        Name in ``planner.engines``.
    goal
        "quality": little loss first; "fit": smallest memory first.
    """
    rows = [row for row in _rows("quantisation.yaml") if _fits_card(row, gpu, engine) and row.get("goal", goal) == goal]
    mine = [row for row in rows if engine in row.get("engine", ())]
    found = [one for one in mine if "goal" not in one] or rows
    first = {row["scheme"]: row for row in reversed(found)}  # a scheme that two rows name is given once, by the first
    return tuple(
        Weights(row["name"], row["scheme"], row["kv_dtype"], goal, row["reason"], row["source"], str(row["as_of"]))
        for row in found
        if first[row["scheme"]] is row
    )


def engine_choices(gpu: Gpu, load: Load) -> tuple[EngineChoice, ...]:
    """Engines for a load on a card, best first; never empty for a card that some row fits."""
    return tuple(
        EngineChoice(row["name"], row["engine"], tuple(row["also"]), row["reason"], row["source"], str(row["as_of"]))
        for row in _rows("engines.yaml")
        if row.get("vendor", gpu.vendor) == gpu.vendor and _fits_load(row, load)
    )


@cache
def vendor_of(name: str) -> Vendor:
    """How a maker's cards are asked for. Raises ConfigError for one that is not known."""
    rows: Mapping[str, Any] = _read("vendors.yaml")["vendors"]
    row = rows.get(name)
    if row is None:
        raise ConfigError(
            f"cards of {name or 'an unknown maker'}: how containers get them is not known; use --form command"
        )
    return Vendor(
        name, row["kubernetes"], row.get("compose", ""), tuple(row.get("devices", ())), row.get("each", ""),
        (row["note"],) if "note" in row else (), row["source"],
    )  # fmt: skip


def _fits_card(row: Mapping[str, Any], gpu: Gpu, engine: str) -> bool:
    if row.get("vendor", gpu.vendor) != gpu.vendor or engine not in row.get("engine", (engine,)):
        return False
    if not gpu.capability.startswith(row.get("capability_like", "")):
        return False
    if "capability_from" not in row:
        return "vendor" in row or "engine" in row
    try:
        capability = float(gpu.capability)
    except ValueError:
        return False
    return bool(row["capability_from"] <= capability < row.get("capability_below", 1000))


def _fits_load(row: Mapping[str, Any], load: Load) -> bool:
    least = ((row.get("shared_ratio_from"), load.shared_ratio), (row.get("concurrency_from"), load.concurrency))
    if any(wanted is not None and (told is None or told < wanted) for wanted, told in least):
        return False
    return bool(row.get("place", load.place) == load.place and row.get("wish", load.wish) == load.wish)


def _rows(name: str) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = _read(name)["rows"]
    return rows


@cache
def _read(name: str) -> Any:
    text = (files("planner") / "choices" / name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both loaders are safe
