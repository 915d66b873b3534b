"""Which requests a URL asks for: filters, token bands, order and least latency. Pure; pages and API share it.

A filter that is missing or empty does not matter. ``(not told)`` asks for the requests of which a value is not known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from goodwatch.app.request_view import Slice
from goodwatch.core.duration import duration_s
from goodwatch.core.request import Outcome, Vantage, Verdict
from goodwatch.signals.heatmap import QUANTILES, Ask, Measure
from goodwatch.signals.request_frames import LATENCY_FIELDS

NOT_TOLD: Final = "(not told)"
#: columns of facts that can be filtered by, and grouped by
COLUMNS: Final = ("model", "tenant", "adapter", "route", "form", "target", "deployment")
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "status": tuple(one.value for one in Outcome),
    "verdict": tuple(one.value for one in Verdict),
}
FILTERS: Final = (*COLUMNS, *_WORDS)

_TITLES: Final = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "queue": "queue time"}
_BAND: Final = re.compile(r"(\d{1,12})(-(\d{1,12})?)?")
#: measures of the map that are not latencies
SUM_MEASURES: Final[dict[str, tuple[Measure, str]]] = {
    "attainment": (Measure.ATTAINMENT, "attainment"),
    "requests": (Measure.REQUESTS, "requests"),
    "cost": (Measure.COST, "USD per million output tokens"),
    "cost_good": (Measure.COST_GOOD, "USD per million good output tokens"),
    "quality": (Measure.QUALITY, "share of scored requests that pass"),
}


def field_key(field: str) -> str:
    """A latency field as a URL names it: ``engine_ttft`` for ``engine_ttft_s``."""
    return field.removesuffix("_s")


def field_text(field: str) -> str:
    """A latency field for a person.

    Examples
    --------
    >>> field_text("engine_ttft_s"), field_text("client_e2e_s")
    ('TTFT at the engine', 'E2E at the client')
    """
    vantage, name = field_key(field).split("_")
    return f"{_TITLES[name]} at the {vantage}"


def told(value: str | None) -> str:
    """A value of a filter as a URL and a page write it."""
    return NOT_TOLD if value is None else value


@dataclass(frozen=True, slots=True)
class Order:
    """How a list is sorted; ``field`` is the latency that ``over`` and the columns are about."""

    key: str
    column: str
    text: str
    field: str
    descending: bool = True


def orders(vantage: Vantage) -> dict[str, Order]:
    """What a list can be sorted by, by key; the first is the default: the slowest by the service's own stopwatch."""
    own = f"{vantage.value}_e2e_s"
    fields = [own, *(f for f in LATENCY_FIELDS if f != own)]
    found = [Order(field_key(f), f, f"slowest by {field_text(f)}", f) for f in fields]
    found += [
        Order("newest", "ended_at", "newest first", own),
        Order("output", "output_tokens", "most output tokens", own),
        Order("input", "input_tokens", "most input tokens", own),
    ]
    return {one.key: one for one in found}


def order_of(query: Mapping[str, str], vantage: Vantage) -> Order:
    """The order that a URL asks for. Raises ValueError."""
    known = orders(vantage)
    key = query.get("order") or next(iter(known))
    if key not in known:
        raise ValueError(f"order: {key[:40]!r} is not one of {', '.join(known)}")
    return known[key]


def tokens_of(where: str, text: str) -> tuple[int | None, int | None]:
    """Inclusive bounds of a number of tokens.

    Examples
    --------
    >>> tokens_of("input", "64-255"), tokens_of("input", "65536-"), tokens_of("input", "0"), tokens_of("input", "")
    ((64, 255), (65536, None), (0, 0), (None, None))
    """
    if not text:
        return None, None
    found = _BAND.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{where}: {text[:40]!r} is no number of tokens; write 64-255, 65536-, 0 or {NOT_TOLD}")
    low = int(found[1])
    high = low if found[2] is None else None if found[3] is None else int(found[3])
    if high is not None and high < low:
        raise ValueError(f"{where}: {text[:40]!r} ends before it begins; write the smaller number first")
    return low, high


def slice_of(query: Mapping[str, str], service: str, start_s: float, end_s: float, *, field: str) -> Slice:
    """The requests that a URL asks for; ``over`` is held against the latency ``field``. Raises ValueError."""
    equal: dict[str, str | None] = {}
    for name in FILTERS:
        text = query.get(name)
        if not text:
            continue
        if name in _WORDS and text not in _WORDS[name]:
            raise ValueError(f"{name}: {text[:40]!r} is not one of {', '.join(_WORDS[name])}")
        equal[name] = None if text == NOT_TOLD else text
    bands: dict[str, tuple[int | None, int | None]] = {}
    for name in ("input", "output"):
        text = query.get(name, "")
        if text == NOT_TOLD:
            equal[f"{name}_tokens"] = None
        else:
            bands[f"{name}_tokens"] = tokens_of(name, text)
    over = query.get("over", "")
    slower = None if not over else (field, _over_s(over))
    anything = (None, None)
    return Slice(
        service, start_s, end_s, equal, bands.get("input_tokens", anything), bands.get("output_tokens", anything), slower
    )  # fmt: skip


def _over_s(text: str) -> float:
    try:
        return duration_s(text.strip())
    except ValueError as error:
        raise ValueError(f"over: {text[:40]!r} {error}") from None


def ask_of(query: Mapping[str, str], vantage: Vantage) -> Ask:
    """What a map is to show; by default the p99 of TTFT by the service's own stopwatch. Raises ValueError."""
    text = query.get("measure") or f"{vantage.value}_ttft"
    if text in SUM_MEASURES:
        return Ask(SUM_MEASURES[text][0])
    field = f"{text}_s"
    if field not in LATENCY_FIELDS:
        known = [*map(field_key, LATENCY_FIELDS), *SUM_MEASURES]
        raise ValueError(f"measure: {text[:40]!r} is not one of {', '.join(known)}")
    quantile = query.get("q") or "p99"
    names = {quantile_key(q): q for q in QUANTILES}
    if quantile not in names:
        raise ValueError(f"q: {quantile[:40]!r} is not one of {', '.join(names)}")
    return Ask(Measure.LATENCY, names[quantile], field)


def quantile_key(quantile: float) -> str:
    """A quantile as it is written: ``p99``."""
    return f"p{quantile * 100:g}"


def measure_key(ask: Ask) -> str:
    """The measure as a URL names it."""
    if ask.measure is Measure.LATENCY:
        return field_key(ask.field)
    return next(key for key, (measure, _) in SUM_MEASURES.items() if measure is ask.measure)


def measure_text(ask: Ask) -> str:
    """The measure for a person: "TTFT at the engine, p99"."""
    if ask.measure is Measure.LATENCY:
        return f"{field_text(ask.field)}, {quantile_key(ask.quantile)}"
    return SUM_MEASURES[measure_key(ask)][1]


def link(**parts: str | None) -> str:
    """A query string of what is set.

    Examples
    --------
    >>> link(service="a/b", model="", input="64-255")
    'service=a%2Fb&input=64-255'
    """
    return urlencode({name: value for name, value in parts.items() if value})
