"""One metrics body, as read: native names, labels and values, before any meaning is attached."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RawSample:
    """One line of an exposition: name as written (suffix included), labels, value."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a body; the rest of the body was still read."""

    line: int
    reason: str  # stable, short, used as a counter label: "bad_value", "bad_labels", "too_long", ...
    text: str  # for a person


@dataclass(frozen=True, slots=True)
class Page:
    """One parsed metrics body.

    ``types`` and ``help`` are keyed by family name as declared. OpenMetrics counter families are declared
    without ``_total`` while their samples carry it; both stay as written.
    """

    samples: list[RawSample] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    help: dict[str, str] = field(default_factory=dict)
    format: str = "text"  # "text" (0.0.4), "openmetrics" (1.0), "json" (TensorRT-LLM iteration statistics)
    problems: list[Problem] = field(default_factory=list)
