"""What boards are made of: values that know nothing of Grafana's JSON, grafanalib or the network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from goodwatch.core.engine import Engine
from goodwatch.core.model import Limits

Kind = Literal["stat", "timeseries", "table", "bargauge", "heatmap", "state-timeline", "text"]

#: width of Grafana's grid
GRID: Final = 24
NO_DATA: Final = "No data"
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"


@dataclass(frozen=True, slots=True)
class Step:
    """A threshold: from ``value`` on (None: from the lowest) the colour holds."""

    value: float | None
    color: str


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression of a panel.

    ``form`` is "series" (a range), "table" (now, one row a series), "now" (now, for a single number) or "buckets"
    (a range of histogram buckets). ``exemplars`` asks for traces beside the samples.
    """

    expr: str
    legend: str = ""
    form: Literal["series", "table", "now", "buckets"] = "series"
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A data link: text and URL, in which Grafana fills its variables."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Override:
    """Properties of the fields that a matcher finds: by name, or by a regular expression of names."""

    match: str
    properties: tuple[tuple[str, Any], ...]
    by: Literal["byName", "byRegexp"] = "byName"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a question's number, what it means and where it leads.

    ``description`` has definition and basis of the number. ``why_empty`` names a reason for a query that may rightly
    be without data on a healthy system. ``color`` is a colour mode other than the type's own. ``options`` go over the panel type's own, ``custom`` over its field options.
    """

    kind: Kind
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    width: int = 8
    height: int = 8
    steps: tuple[Step, ...] = (Step(None, BLUE),)  # no judgement: a colour that says neither good nor bad
    no_data: str = NO_DATA
    why_empty: str = ""
    color: str = ""
    links: tuple[Link, ...] = ()
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    mappings: tuple[dict[str, Any], ...] = ()
    transformations: tuple[dict[str, Any], ...] = ()
    overrides: tuple[Override, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading; they flow from left to right."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A picker: values of ``label`` on ``metric``, or (``kind`` "constant") one hidden value.

    ``everything`` is the regular expression that "All" stands for. ``multi`` allows several values.
    """

    name: str
    label: str
    query: str = ""
    kind: Literal["query", "constant", "datasource"] = "query"
    everything: str = ".+"
    multi: bool = True


@dataclass(frozen=True, slots=True)
class Note:
    """Annotations over all panels: a PromQL expression, or Grafana's own with these tags."""

    name: str
    color: str
    expr: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """One board. ``question`` is what its first row answers."""

    uid: str
    title: str
    question: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...]
    notes: tuple[Note, ...] = ()
    tags: tuple[str, ...] = ()
    range_from: str = "now-6h"
    refresh: str = "30s"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Panels of all rows."""
        return tuple(panel for row in self.rows for panel in row.panels)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a service promised: share of good requests (None without an objective) and the limits of a good one."""

    objective: float | None
    limits: Limits


@dataclass(frozen=True, slots=True)
class Options:
    """How the boards fit to their owner.

    ``engines`` and ``accelerators`` are the tables whose boards are wanted, by name; ``versions`` pins an engine's
    version, else a query copes with every name that it ever had. ``services`` are promises by service name: they
    become target lines. ``url`` is where people reach goodwatch's pages.
    """

    engines: Mapping[str, Engine] = field(default_factory=dict)
    accelerators: Mapping[str, Engine] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, Promise] = field(default_factory=dict)
    url: str = "http://127.0.0.1:9470"
