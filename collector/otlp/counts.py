"""What the receiver counts, as plain values for whoever exports them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from collector.otlp.kinds import Kind


@dataclass(frozen=True, slots=True)
class OtlpCounts:
    """State of the receiver at one moment. Everything but the last four fields only grows.

    ``requests`` is keyed (kind, transport, media type, answer): ("traces", "http", "application/json", "ok").
    ``accepted_spans`` were acknowledged; of them ``rows`` went to the store, ``dropped`` (by class) were not needed, and
    the rest was refused. ``repeated_rows`` of the rows were there already. ``refused`` are spans, log records and metrics
    that were wrong and not kept, and ``omitted`` damaged parts left out of what was kept, both keyed (kind, reason);
    ``oddities`` are fields of spans that were not used. ``ignored`` counts log records and metrics that nobody wanted,
    by kind. ``bytes`` (of bodies that came whole, as sent) is keyed by transport.
    """

    requests: Mapping[tuple[str, str, str, str], int]
    bytes: Mapping[str, int]
    accepted_spans: int
    rows: int
    repeated_rows: int
    refused: Mapping[tuple[str, str], int]
    dropped: Mapping[str, int]
    omitted: Mapping[tuple[str, str], int]
    oddities: Mapping[str, int]
    ignored: Mapping[str, int]
    commits: int
    commit_s: float
    decode_s: float
    held_bytes: int
    held_bodies: int
    oldest_s: float
    last_commit_s: float | None


@dataclass(slots=True)
class Counts:
    """The same while it is counted; touched on the event loop only."""

    requests: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    accepted_spans: int = 0
    rows: int = 0
    repeated_rows: int = 0
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    omitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    oddities: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    commit_s: float = 0.0
    decode_s: float = 0.0
    last_commit_s: float | None = None

    def left_out(self, kind: Kind, refused: Mapping[str, int], omitted: Mapping[str, int]) -> None:
        """Count items of a request that were not kept, and parts of items that were."""
        self.refused.update({(kind.name, reason): count for reason, count in refused.items()})
        self.omitted.update({(kind.name, reason): count for reason, count in omitted.items()})

    def at(self, *, held_bytes: int, held_bodies: int, oldest_s: float) -> OtlpCounts:
        """A copy that does not change any more."""
        return OtlpCounts(
            dict(self.requests), dict(self.bytes), self.accepted_spans, self.rows, self.repeated_rows,
            dict(self.refused), dict(self.dropped), dict(self.omitted), dict(self.oddities), dict(self.ignored),
            self.commits, self.commit_s, self.decode_s, held_bytes, held_bodies, oldest_s, self.last_commit_s,
        )  # fmt: skip
