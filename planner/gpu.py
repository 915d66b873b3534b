"""Accelerators as the engines see them: what the driver reports is less than what the box says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from goodwatch.core.errors import ConfigError
from planner.estimate import Estimate, exactly, within

#: reported GiB per marketed GB where no reported size is listed; each from devices of that kind in the catalogue.
#: GDDR server cards lose ECC bits (A10, L40S, T4: 0.91 to 0.925), GeForce and HBM cards only firmware space.
_VISIBLE: Final[Mapping[str, tuple[float, float]]] = {
    "gddr-ecc": (0.922, 0.01),
    "geforce": (0.981, 0.006),
    "hbm": (0.989, 0.01),
    "amd": (0.9995, 0.002),
    "ascend": (0.94, 0.02),
    "other": (0.98, 0.03),
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator. ``total_gib`` is the memory that the driver reports; ``None`` is unknown.

    ``confidence``: of the catalogue's row; "low" is press or hearsay. ``shared``: the memory is the host's too, so that the operating system holds a part of it.
    ``named`` is False where only a size is known ("24 GB class"): tables that go by card then hold either way.
    """

    name: str
    total_gib: Estimate | None
    nominal_gb: float | None = None
    vendor: str = ""
    bandwidth_gb_s: float | None = None
    capability: str = ""
    named: bool = True
    source: str = ""
    as_of: str = ""
    shared: bool = False
    confidence: str = ""

    @property
    def may_be_nvidia(self) -> bool:
        """Whether nothing says that it is another maker's."""
        return self.vendor in ("", "NVIDIA")

    @property
    def is_a100(self) -> bool:
        """Whether it is an A100, which engines treat apart from other cards of its size."""
        return "a100" in self.name.casefold()


def gpu_from_row(row: Mapping[str, Any]) -> Gpu:
    """One row of the accelerator catalogue; keys as in ``planner/models/accelerators.yaml``."""
    nominal, vendor = float(row["mem_gb"]), str(row["vendor"])
    seen = row.get("visible_gib")
    size = exactly(float(seen), "reported by the driver") if seen else visible(nominal, _kind(row["name"], row))
    return Gpu(
        str(row["name"]), size, nominal, vendor, row.get("mem_bw_gb_s"), str(row.get("compute_capability", "")),
        True, str(row["source"]), str(row.get("as_of", "")), bool(row.get("shared")), str(row.get("confidence", "")),
    )  # fmt: skip


def _kind(name: str, row: Mapping[str, Any]) -> str:
    if row["vendor"] == "AMD":
        return "amd"
    if row["vendor"] == "Huawei":
        return "ascend"
    memory = str(row.get("mem_type", ""))
    if name.upper().startswith("RTX") and "PRO" not in name.upper():
        return "geforce"
    return "hbm" if memory.startswith("HBM") else "gddr-ecc" if memory.startswith("GDDR6") else "hbm"


def visible(nominal_gb: float, kind: str = "other") -> Estimate:
    """Reported GiB of a card of ``nominal_gb``."""
    share, doubt = _VISIBLE[kind]
    return within(
        nominal_gb * share, below=nominal_gb * doubt, above=min(nominal_gb * doubt, nominal_gb * (1.003 - share)),
        basis=f"{share:.3g} GiB reported per marketed GB",
    )  # fmt: skip


def key(name: str) -> str:
    """A name without vendor, spaces and marks: "Tesla T4" and "NVIDIA-T4" are one."""
    text = re.sub(r"nvidia|tesla|geforce|amd|instinct|huawei|graphics|unified|\(.*?\)", "", name.casefold())
    return re.sub(r"[\s_-]+", "", text)


def find(name: str, known: Iterable[Gpu]) -> Gpu | None:
    """The catalogue's card of this name; None when there is none.

    The shortest name that holds every part of what was asked wins, an SXM card before its PCIe sister.
    """
    parts = [p for p in re.split(r"[\s_/-]+", key_spaced(name)) if p]
    rows = [*known]
    for one in rows:
        if key(one.name) == key(name):
            return one
    words = [p for p in parts if not re.fullmatch(r"\d+gb", p)]
    hits = [one for one in rows if words and all(_holds(p, one) for p in parts)]
    return min(hits, key=lambda g: ("PCIe" in g.name, len(g.name)), default=None)


def key_spaced(name: str) -> str:
    """As ``key`` with the words kept apart, and "80 GB" as one word."""
    text = re.sub(r"nvidia|tesla|geforce|amd|instinct|huawei|unified|\(.*?\)", " ", name.casefold())
    text = re.sub(r"^\s*\d+\s*x\s*", " ", text)  # "8x H100": the count is no part of the name
    text = re.sub(r"\b(hbm\d*e?|gddr\d*x?|laptop|gpus?|desktop)\b", " ", text)
    text = re.sub(r"\b(rtx|gaudi)\s*(?=\d)", r"\1 ", text).replace("dgx spark", "gb10")
    return re.sub(r"(\d)\s*(gb|gib|g)\b", r"\1gb", text)


def _holds(part: str, gpu: Gpu) -> bool:
    words = key_spaced(gpu.name).replace("-", " ").split()
    if part.endswith("gb") and part[:-2].isdigit():
        return gpu.nominal_gb is not None and abs(gpu.nominal_gb - float(part[:-2])) <= 0.08 * float(part[:-2])
    starts = len(part) > 3 or part == "sxm"  # "SXM" is SXM2, SXM4 or SXM5
    return part in words or (starts and not part.isdigit() and any(word.startswith(part) for word in words))


def chosen(name: str, known: Iterable[Gpu]) -> Gpu:
    """The card that the operator named.

    Raises
    ------
    ConfigError
        No card of that name: says which are near.
    """
    rows = [*known]
    found = find(name, rows)
    if found is None:
        near = get_close_matches(name, [one.name for one in rows], 4, 0.3)
        raise ConfigError(f"--gpu {name}: unknown; {'near it: ' + ', '.join(near) if near else 'see docs/models.md'}."
                          " Give --gpu-memory-gib beside any name to size a card that is not listed.")  # fmt: skip
    return found
