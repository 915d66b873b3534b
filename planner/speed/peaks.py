"""What an accelerator can do at most: arithmetic by type, memory and links, from the built-in catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

import yaml

from goodwatch.core.errors import ConfigError
from planner.gpu import chosen, gpu_from_row

#: cards that sources name otherwise than the catalogue does; a row of the same silicon
_SAME_SILICON: Final[Mapping[str, str]] = MappingProxyType({"GH200-480GB": "GH200-96GB"})
#: one direction of a PCIe link, bytes/s, where the catalogue has no link figure: (generation, bytes/s of 16 lanes)
_PCIE: Final = (("3.0", 16e9), ("4.0", 32e9), ("5.0", 64e9))


@dataclass(frozen=True, slots=True, eq=False)  # one object a card: compared and hashed by identity
class Peaks:
    """Data-sheet peaks of one accelerator, dense.

    ``flops``: per s by type (fp16, fp8, fp4, int8), a type that the card lacks is absent; ``link_bytes_per_s``: one
    direction, ``wide_link_bytes_per_s`` the same among more than two cards (a bridge joins two); ``family``: what efficiencies are grouped by (architecture); ``doubtful``: the catalogue's row is of low
    confidence.
    """

    name: str
    family: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    flops: Mapping[str, float]
    link_bytes_per_s: float
    wide_link_bytes_per_s: float
    doubtful: bool
    source: str


@cache
def _rows() -> tuple[Mapping[str, Any], ...]:
    text = (files("planner") / "models" / "accelerators.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["accelerators"])  # noqa: S506  both are safe


@cache
def peaks(name: str) -> Peaks:
    """Peaks of the accelerator of this name.

    Raises
    ------
    ConfigError
        No such card, or its bandwidth or arithmetic peak is not published: no speed can be told.
    """
    rows = {str(row["name"]): row for row in _rows()}
    found = chosen(_SAME_SILICON.get(name, name), [gpu_from_row(row) for row in rows.values()])
    row = rows[found.name]
    if not row.get("mem_bw_gb_s") or not row.get("dense_fp16_tflops"):
        raise ConfigError(f"{name}: the catalogue has no bandwidth or no peak of this card: its speed cannot be told")
    kinds = {"fp16": "dense_fp16_tflops", "fp8": "dense_fp8_tflops", "fp4": "dense_fp4_tflops", "int8": "int8_tops"}
    flops = {kind: float(row[key]) * 1e12 for kind, key in kinds.items() if row.get(key)}
    assert found.total_gib is not None
    return Peaks(
        found.name, str(row["arch"]), found.total_gib.point * 2.0**30, float(row["mem_bw_gb_s"]) * 1e9,
        MappingProxyType(flops), *_links(row), str(row.get("confidence")) == "low", str(row["source"]),
    )  # fmt: skip


def _links(row: Mapping[str, Any]) -> tuple[float, float]:
    """Bytes/s of one direction, between two cards and among more: half of the catalogue's figure (both directions)."""
    link = str(row.get("link", ""))
    pcie = next((speed for mark, speed in _PCIE if mark in link), _PCIE[1][1])
    if not row.get("link_gb_s") or "to CPU" in link:  # a link to the host's processor joins no two cards
        return pcie, pcie
    told = float(row["link_gb_s"]) * 1e9 / 2
    return told, pcie if "bridge" in link else told
