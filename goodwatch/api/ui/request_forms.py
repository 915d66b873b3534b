"""The plain forms above the pages of requests: what can be chosen, what is chosen, and the links that keep it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector.capability import display_model
from goodwatch.api.request_query import COLUMNS, NOT_TOLD, Order, field_key, field_text, quantile_key, told
from goodwatch.api.ui.ranges import TimeRange
from goodwatch.core.request import Outcome, Verdict
from goodwatch.signals.heatmap import QUANTILES
from goodwatch.signals.request_frames import LATENCY_FIELDS

#: more values of one column than this are not offered; a URL may still ask for any
_MOST_VALUES: Final = 200
_LABELS: Final = {
    "model": "Model", "tenant": "Tenant", "adapter": "Adapter", "route": "Route", "form": "Form", "target": "Target",
    "deployment": "Ran",
}  # fmt: skip
_SUMS: Final = (
    ("attainment", "attainment"), ("requests", "requests"), ("cost", "cost per 1M output tokens"),
    ("cost_good", "cost per 1M good output tokens"), ("quality", "quality: share that passes"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a select."""

    value: str
    text: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """One select of a form; groups are (title, choices), title "" for none."""

    name: str
    label: str
    groups: tuple[tuple[str, tuple[Choice, ...]], ...]


def select(name: str, label: str, pairs: Iterable[tuple[str, str]], chosen: str) -> Select:
    """A select of (value, text) pairs; a chosen value that is not among them is added."""
    choices = [Choice(value, text, value == chosen) for value, text in pairs]
    if chosen and not any(c.chosen for c in choices):
        choices.append(Choice(chosen, chosen, True))
    return Select(name, label, (("", tuple(choices)),))


def measure_select(chosen: str) -> Select:
    """What a map can show, latencies by vantage point."""
    groups: dict[str, list[Choice]] = {}
    for field in LATENCY_FIELDS:
        vantage = field.partition("_")[0]
        key = field_key(field)
        groups.setdefault(f"Latency at the {vantage}", []).append(Choice(key, field_text(field), key == chosen))
    others = tuple(Choice(key, text, key == chosen) for key, text in _SUMS)
    return Select("measure", "Show", (*((t, tuple(c)) for t, c in groups.items()), ("Others", others)))


def quantile_select(chosen: str) -> Select:
    """Quantiles of a latency."""
    return select("q", "Quantile", [(quantile_key(q), quantile_key(q)) for q in QUANTILES], chosen)


def column_selects(found: Mapping[str, Sequence[str | None]], query: Mapping[str, str]) -> tuple[Select, ...]:
    """Filters by column: those with more than one value, and those that are set."""
    made = []
    for column in COLUMNS:
        values, chosen = found.get(column, ()), query.get(column, "")
        if len(values) < 2 and not chosen:
            continue
        pairs = [("", "any")] + [(told(v), _short(column, v)) for v in values[:_MOST_VALUES]]
        made.append(select(column, _LABELS[column], pairs, chosen))
    return tuple(made)


def word_selects(query: Mapping[str, str]) -> tuple[Select, ...]:
    """Filters by how a request ended and what the SLO says of it."""
    words = (("verdict", "Verdict", tuple(Verdict)), ("status", "Status", tuple(Outcome)))
    return tuple(
        select(
            name, label, [("", "any"), *((one.value, one.value.replace("_", " ")) for one in known)], query.get(name, "")
        )
        for name, label, known in words
    )  # fmt: skip


def order_select(known: Mapping[str, Order], chosen: str) -> Select:
    """How the list is sorted."""
    return select("order", "Order", [(key, one.text) for key, one in known.items()], chosen)


def _short(column: str, value: str | None) -> str:
    if value is None:
        return NOT_TOLD
    return display_model(value) if column == "model" else value


def whole_seconds(chosen: TimeRange) -> TimeRange:
    """A range whose ends can be written in a link without losing a request."""
    return replace(chosen, start_s=float(int(chosen.start_s)), end_s=float(int(chosen.end_s)))


def range_parts(chosen: TimeRange, *, fixed: bool = False) -> dict[str, str]:
    """A range as parts of a query; ``fixed`` writes the ends, so that it shows the same later."""
    if chosen.key != "custom" and not fixed:
        return {"range": chosen.key}
    return {"from": f"{chosen.start_s:.0f}", "to": f"{chosen.end_s:.0f}"}
