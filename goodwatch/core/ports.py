"""What the stages ask of each other; adapters fulfil these, the app wires them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import polars as pl

    from goodwatch.core.drift import Drift
    from goodwatch.core.model import Deployment, Scrape
    from goodwatch.core.record import Record


class StoreHealth(Protocol):
    """Whether a store works; ``message`` says what to do when it does not."""

    @property
    def ok(self) -> bool:
        """False when the last write failed or the store cannot be read now."""
        ...

    @property
    def message(self) -> str:
        """What is wrong and how to mend it; "" when nothing is."""
        ...

    @property
    def oldest_s(self) -> float | None:
        """The first moment that is kept, Unix seconds; None when nothing is, or where it is not known."""
        ...

    @property
    def bytes(self) -> int:
        """Size of its files."""
        ...


class SampleStore(Protocol):
    """Keeps scrapes and what was derived from them. Frames follow ``goodwatch.signals.frames``.

    All methods are blocking; the service calls them in one worker thread. Intervals are ``[start_s, end_s)``.
    Every method raises ``StoreError`` when the store cannot do it, and says what to do.
    """

    def append(self, scrapes: Sequence[Scrape]) -> None:
        """Commit scrapes (samples and up/down rows) in one transaction."""
        ...

    def samples(
        self,
        start_s: float,
        end_s: float,
        *,
        service: str | None = None,
        target: str | None = None,
        signals: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Samples as ``frames.SAMPLES``, sorted by ts."""
        ...

    def scrapes(
        self, start_s: float, end_s: float, *, service: str | None = None, target: str | None = None
    ) -> pl.DataFrame:
        """One row a scrape, failed ones included, as ``frames.SCRAPES``, sorted by ts."""
        ...

    def append_minutes(self, minutes: pl.DataFrame) -> None:
        """Commit per-minute increases (``frames.MINUTES``); a minute that is there already is replaced."""
        ...

    def minutes(
        self,
        start_s: float,
        end_s: float,
        *,
        service: str | None = None,
        target: str | None = None,
        signals: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Per-minute increases and gauge summaries as ``frames.MINUTES``, sorted by minute_s."""
        ...

    def append_derived(self, derived: pl.DataFrame) -> None:
        """Commit derived numbers (``frames.DERIVED``); the same key again replaces."""
        ...

    def derived(
        self, start_s: float, end_s: float, *, service: str | None = None, name: str | None = None
    ) -> pl.DataFrame:
        """Derived numbers as they were published, as ``frames.DERIVED``, sorted by ts."""
        ...

    def record_deployment(self, deployment: Deployment) -> bool:
        """Keep what a target runs if it differs from what it ran before; True when it was a change."""
        ...

    def deployments(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Deployment]:
        """Deployment changes in the interval, oldest first."""
        ...

    def compact(self, now_s: float) -> int:
        """Drop what is past its retention; returns rows dropped."""
        ...

    def health(self) -> StoreHealth:
        """State and extent; never raises."""
        ...

    def close(self) -> None:
        """Flush and let go of the files; safe to call twice."""
        ...


class RequestStore(Protocol):
    """Keeps spans' parts, the facts made of them, rollups and scores. Frames follow ``signals.request_frames``.

    All methods are blocking and raise ``StoreError`` when the store cannot do it. Intervals are ``[start_s, end_s)``.
    """

    def append_parts(self, batches: Sequence[pl.DataFrame]) -> int:
        """Commit parts (``PARTS``) in one transaction, on disk when this returns; returns rows that were new.

        A part whose (trace_id, span_id) is known already is left out: senders repeat what was not acknowledged.
        """
        ...

    def parts(self, trace_ids: Sequence[str]) -> pl.DataFrame:
        """All parts of these traces as ``PARTS``."""
        ...

    def unsettled(self, before_s: float, limit: int) -> list[str]:
        """Traces with parts that no fact holds yet and whose last part came before ``before_s``; oldest first."""
        ...

    def waiting(self) -> int:
        """How many traces have parts that no fact holds yet, as far as is held in memory; does not block."""
        ...

    def settle(self, trace_ids: Sequence[str], facts: pl.DataFrame) -> pl.DataFrame:
        """Replace the facts of these traces by ``facts`` (``FACTS``) and mark their parts as settled, in one commit.

        Returns trace_id and ended_at of the facts that were there before.
        """
        ...

    def facts(
        self, start_s: float, end_s: float, *, columns: Sequence[str] | None = None, **wanted: object
    ) -> pl.DataFrame:
        """Facts that ended in the interval as ``FACTS``, or these columns of them; ``wanted`` filters by equal columns.

        Sorted by ended_at unless only some columns are asked for.
        """
        ...

    def replace_rollups(
        self, tier_s: int, starts_s: Sequence[float], rollups: pl.DataFrame, bins: pl.DataFrame
    ) -> None:
        """Put these rows (``ROLLUPS``, ``BINS``) in place of all of the same tier and starts."""
        ...

    def rollups(self, tier_s: int, start_s: float, end_s: float, *, service: str | None = None) -> pl.DataFrame:
        """Rollups of one tier as ``ROLLUPS``."""
        ...

    def bins(
        self, tier_s: int, start_s: float, end_s: float, field: str, *, service: str | None = None
    ) -> pl.DataFrame:
        """Bins of one latency field as ``BINS``."""
        ...

    def summed_rollups(self, spans: Sequence[tuple[int, float, float]], by: Sequence[str] = ()) -> pl.DataFrame:
        """Rollups of spans (tier_s, start_s, end_s) that do not overlap, added up over time, as ``ROLLUPS``.

        ``by`` (of service, model, tenant) stays apart; the others of these are null, as are tier_s and slo.
        """
        ...

    def summed_bins(
        self, spans: Sequence[tuple[int, float, float]], field: str, by: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Bins of one latency field added up in the same way, as ``BINS``."""
        ...

    def append_scores(self, scores: pl.DataFrame) -> None:
        """Commit scores (``SCORES``); the same identity again replaces."""
        ...

    def scores(self, start_s: float, end_s: float, *, service: str | None = None) -> pl.DataFrame:
        """Scores given in the interval as ``SCORES``, sorted by ts."""
        ...

    def compact(self, now_s: float) -> int:
        """Drop what is past its retention; returns rows dropped."""
        ...

    def health(self) -> StoreHealth:
        """State and extent; never raises."""
        ...

    def close(self) -> None:
        """Flush and let go of the files; safe to call twice."""
        ...


class RecordStore(Protocol):
    """Keeps small records for ever: alerts, silences, recommendations, experiments, reports.

    All methods are blocking, may be called from any thread, and raise ``StoreError`` when the store cannot do it.
    """

    def put(self, kind: str, id: str, at_s: float, body: Mapping[str, object]) -> None:
        """Commit a version of a record, on disk when this returns; versions before it are kept.

        Raises ``TypeError`` or ``ValueError`` for a body that JSON cannot hold.
        """
        ...

    def latest(
        self, kind: str, *, start_s: float | None = None, end_s: float | None = None, limit: int | None = None
    ) -> list[Record]:
        """The newest version of each record of a kind whose newest version is in the interval; newest first."""
        ...

    def get(self, kind: str, id: str) -> Record | None:
        """The newest version of one record."""
        ...

    def history(self, kind: str, id: str) -> list[Record]:
        """All versions of one record, oldest first."""
        ...

    def health(self) -> StoreHealth:
        """State and extent; never raises."""
        ...

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        ...


class DriftListener(Protocol):
    """Told when a service drifts; the planner listens."""

    def drifted(self, drift: Drift) -> None:
        """Called on the event loop when a drift begins and again when it ends. Does not block and does not raise."""
        ...
