"""A result file of a load-test tool in our words: seconds, tokens, what was counted, and what the file cannot tell.

Latencies carry how they were pooled: one value a ``request`` (TTFT, TPOT, E2E), one a ``gap`` between two chunks (ITL).
A P99 of gaps and a P99 of requests answer different questions and are never put beside each other.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from goodwatch.core.errors import ConfigError
from goodwatch.core.exponential import enough
from planner.experiments.statistics import quantile
from planner.experiments.values import Metric

#: per-request latencies, gaps, and what is none of both and must not be taken for one
Pool = Literal["request", "gap", "run"]
_KEPT: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Statistic:
    """One metric of one run. ``n`` None: nobody told how many. ``quantiles`` are (q, value), as many as n supports.

    ``unsupported`` names quantiles that the file holds and that so few values do not support: they are its maximum,
    or nearly. ``values`` are raw, in the order of the file, () when the file has none.
    """

    name: str
    unit: str
    pool: Pool
    n: float | None = None
    mean: float | None = None
    std: float | None = None
    least: float | None = None
    most: float | None = None
    quantiles: tuple[tuple[float, float], ...] = ()
    unsupported: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, q: float) -> float | None:
        """The q-quantile; None when the file has none or n does not support it."""
        return next((value for held, value in self.quantiles if math.isclose(held, q)), None)

    @property
    def median(self) -> float | None:
        """The 0.5-quantile."""
        return self.at(0.5)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One run of a tool.

    ``ok``, ``failed`` and ``cut_off`` (ended by the time limit, neither good nor bad) are requests; None is not told,
    which leaves the share of good requests without a denominator. ``rates`` are per second. ``request_rate`` None with
    ``unlimited`` is as fast as the concurrency allows. ``unmapped`` keeps what has no place here, as it was. ``metrics``
    are those that the file itself defines, with unit and direction; their values are among the statistics.
    """

    tool: str
    source: str
    label: str = ""
    model: str | None = None
    engine: str | None = None
    concurrency: float | None = None
    request_rate: float | None = None
    unlimited: bool = False
    started_s: float | None = None
    duration_s: float | None = None
    ok: float | None = None
    failed: float | None = None
    cut_off: float | None = None
    statistics: tuple[Statistic, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    unmapped: Mapping[str, object] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()

    def statistic(self, name: str) -> Statistic | None:
        """The metric of this name; None when the file does not have it."""
        return next((one for one in self.statistics if one.name == name), None)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: ``content`` is one JSON value, or the rows of a table or of JSON lines."""

    name: str
    form: Literal["json", "lines", "table"]
    content: Any

    @property
    def mapping(self) -> Mapping[str, Any]:
        """The content when it is one JSON object (or the first line of several), else nothing."""
        first = self.content[0] if self.form == "lines" and self.content else self.content
        return first if isinstance(first, Mapping) else {}

    @property
    def objects(self) -> Sequence[Mapping[str, Any]]:
        """Every object of it: the one, or one a line."""
        many = self.content if isinstance(self.content, list) else [self.content]
        return [one for one in many if isinstance(one, Mapping)]


@dataclass(frozen=True, slots=True)
class Importer:
    """One tool's files. ``last`` is asked after all others: it takes what nobody knows."""

    name: str
    title: str
    recognises: Callable[[Document], bool]
    read: Callable[[Document], tuple[Benchmark, ...]]
    last: bool = False


def document(name: str, text: str) -> Document:
    """Parse JSON, JSON lines or CSV.

    Raises
    ------
    ConfigError
        It is none of these; says where it stops being one.
    """
    stripped = text.lstrip("\ufeff").strip()
    if not stripped:
        raise ConfigError(f"{name}: is empty; name a result file")
    if stripped[0] not in "{[":
        try:
            rows = list(csv.DictReader(io.StringIO(text.lstrip("\ufeff"))))
        except csv.Error as error:  # a field that never ends
            raise ConfigError(f"{name}: cannot be read as a table: {error}") from None
        if not rows or len(rows[0]) < 2 or None in rows[0]:
            raise ConfigError(f"{name}: is neither JSON nor a table with a heading line")
        return Document(name, "table", rows)
    try:
        return Document(name, "json", json.loads(stripped))
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        whole = error
    try:
        lines = [json.loads(line) for line in stripped.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        raise ConfigError(f"{name}: cannot be read as JSON: {whole}; was the run cut off while writing?") from None
    return Document(name, "lines", lines)


def number(value: object) -> float | None:
    """A finite number, or text that is one; None for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(str(value).replace(",", "")) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def text(value: object) -> str | None:
    """Text that says something; None otherwise."""
    return value.strip() if isinstance(value, str) and value.strip() else None


def unlimited(value: object) -> bool:
    """Whether a request rate is none: infinite as a number or as a word (tools write inf, Infinity, -1 for none)."""
    return str(value).strip().lower() in ("inf", "infinity")


def told(
    name: str, pool: Pool, n: float | None, figures: Mapping[str, object], *, scale: float = 1.0, unit: str = "s"
) -> Statistic | None:
    """A statistic from what a file says of it; None when it says nothing.

    Parameters
    ----------
    figures
        ``mean std least most`` and quantiles as ``p50``, ``p99.9``.
    scale
        What its values are multiplied with to be in ``unit``: 0.001 for milliseconds.
    """
    known = {key: found * scale for key, value in figures.items() if (found := number(value)) is not None}
    if not known:
        return None
    quantiles = sorted((float(key[1:]) / 100, value) for key, value in known.items() if _is_quantile(key))
    held = tuple((q, value) for q, value in quantiles if n is None or _supports(n, q))
    few = tuple(q for q, _ in quantiles if n is not None and not _supports(n, q))
    return Statistic(
        name, unit, pool, n, known.get("mean"), known.get("std"), known.get("least"), known.get("most"), held, few
    )


def counted(
    name: str, pool: Pool, values: Sequence[object], *, scale: float = 1.0, unit: str = "s"
) -> Statistic | None:
    """A statistic of raw values; None when there is none that is a number."""
    known = [found * scale for value in values if (found := number(value)) is not None]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in known) / (len(known) - 1)) if len(known) > 1 else None
    held = [(q, found) for q in _KEPT if (found := quantile(known, q)) is not None and _supports(len(known), q)]
    return Statistic(
        name, unit, pool, float(len(known)), mean, std, min(known), max(known), tuple(held), values=tuple(known)
    )


def _supports(n: float, q: float) -> bool:
    return enough(n, q) and enough(n, 1 - q)


def _is_quantile(key: str) -> bool:
    return key[:1] == "p" and number(key[1:]) is not None and 0 < float(key[1:]) < 100


def present(*statistics: Statistic | None) -> tuple[Statistic, ...]:
    """Those that are there."""
    return tuple(one for one in statistics if one is not None)


def rates(**named: object) -> dict[str, float]:
    """Those that are numbers."""
    return {name: found for name, value in named.items() if (found := number(value)) is not None}
