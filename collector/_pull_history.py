"""History of a source's targets: raw samples of a past range, read in stretches that the server can answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from collector._pull_client import Client
from collector._pull_options import MOST_POINTS, Answer, PullError
from collector._pull_pages import Before, TargetPages, pages_of, parsed
from collector._pull_query import raw_query
from collector._pull_targets import TargetFactory, interval_of, notes_of
from collector.pipeline import TargetReader
from goodwatch.core.model import Scrape, Target

Key = tuple[str, ...]

#: first, shortest and longest stretch of one query, seconds
_FIRST_S, _SHORTEST_S, _LONGEST_S = 3600, 60, 86_400
#: samples that one answer should hold: about 8 MB, well below every server's default limit
_WANTED_SAMPLES: Final = 250_000
#: half a minute of growing pauses before an overloaded server ends the back-fill
_ATTEMPTS: Final = 6
#: for these a shorter stretch may be answered
_SHORTER_MENDS: Final = ("too_large", "timeout")
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Stretch:
    """Scrapes of one target in ``(start_s, end_s]``, oldest first.

    ``warnings`` are the server's words about a partial answer, ``problem`` is why there are no scrapes where the
    grouping mixes several processes; both "" or empty when all is well.
    """

    target: Target
    start_s: float
    end_s: float
    scrapes: tuple[Scrape, ...]
    warnings: tuple[str, ...] = ()
    problem: str = ""


class PrometheusHistory:
    """Reads the past of one source. All methods raise ``PullError`` and ``PullRefusedError`` as ``Client.ask`` does."""

    def __init__(self, factory: TargetFactory, client: Client) -> None:
        self.factory = factory
        self.client = client

    async def keys(self, start_s: float, end_s: float) -> list[Key]:
        """Targets of which an engine's samples were stored in the range, by the values of ``group_by``."""
        options = self.factory.options
        found: set[Key] = set()
        at_s, span_s = end_s, float(_DAY_S)
        while at_s > start_s:
            span_s = min(span_s, at_s - start_s)
            selector = raw_query(self.factory.kernel_names, self.factory.inner, span_s, synthetic=False)
            query = f"count by ({', '.join(options.group_by)}) (last_over_time({selector}))"
            try:
                answer = await self._ask(query, at_s, shorter=span_s > _FIRST_S)
            except PullError as error:
                if error.reason not in _SHORTER_MENDS or span_s <= _FIRST_S:
                    raise
                span_s /= 4
                continue
            keys = (tuple(one.labels.get(n, "") for n in options.group_by) for one in parsed(answer.series))
            found.update(key for key in keys if any(key))
            at_s -= span_s
        return sorted(found)

    async def read(
        self, key: Key, start_s: float, end_s: float, *, every_s: float | None = None
    ) -> AsyncIterator[Stretch]:
        """Stored scrapes of a target in ``(start_s, end_s]``, in stretches that cover the range without a gap.

        With ``every_s`` one of those that worked in so many seconds: counters lose nothing by it, gauges show fewer
        of their values. Failed ones are all there.
        """
        only = dict(zip(self.factory.options.group_by, key, strict=True))
        reading = _Reading(self.factory, key, every_s)
        span_s, cursor_s = float(_FIRST_S), start_s
        while cursor_s < end_s:
            until_s = min(cursor_s + span_s, end_s)
            # A sample exactly at the start is in the answer or not, by server and version; it was read before.
            query = raw_query(self.factory.names, self.factory.inner, until_s - cursor_s, only)
            try:
                answer = await self._ask(query, until_s, shorter=span_s > _SHORTEST_S)
            except PullError as error:
                if error.reason not in _SHORTER_MENDS or span_s <= _SHORTEST_S:
                    raise
                span_s = max(_SHORTEST_S, span_s / 4)
                continue
            yield reading.stretch(answer, cursor_s, until_s)
            cursor_s, span_s = until_s, reading.next_span_s(answer, until_s - cursor_s)

    async def _ask(self, query: str, at_s: float, *, shorter: bool) -> Answer:
        """``shorter`` says that the same can be asked for in shorter stretches instead of once more."""
        again = {"give_up": _SHORTER_MENDS} if shorter else {}
        return await self.client.ask(query, at_s, attempts=_ATTEMPTS, **again)


class _Reading:
    """What is remembered from one stretch of a target to the next."""

    def __init__(self, factory: TargetFactory, key: Key, every_s: float | None) -> None:
        self._factory = factory
        self._every_s = every_s
        self._taken_s = float("-inf")
        self._key = key
        self._reader: TargetReader | None = None
        self._before = Before()
        self._interval_s: float | None = None

    def stretch(self, answer: Answer, start_s: float, end_s: float) -> Stretch:
        """One answer as scrapes."""
        factory = self._factory
        found = pages_of(parsed(answer.series), factory.options.group_by, factory.keep, {self._key: self._before})
        one = next((t for t in found if t.key == self._key), TargetPages(self._key))
        if self._reader is None:
            self._reader = factory.reader(factory.target(self._key, one.labels))
        notes = notes_of(answer, factory.options.place)
        times = [at for at in one.times if max(self._before.last_s, start_s) < at <= end_s] if not one.ambiguous else []
        pulled = [factory.pulled(self._reader, one, at, notes) for at in times if self._wanted(one, at)]
        self._before = Before(times[-1] if times else self._before.last_s, one.replica)
        self._interval_s = interval_of(times) or self._interval_s
        return Stretch(
            self._reader.target, start_s, end_s, tuple(p.scrape for p in pulled), tuple(n.text for n in notes),
            one.ambiguous,
        )  # fmt: skip

    def _wanted(self, one: TargetPages, at: float) -> bool:
        if self._every_s is None or at not in one.pages or one.up.get(at) is False:
            return True
        # A tenth of slack: scrapes of every 15 s come a little early or late.
        if at - self._taken_s < 0.9 * self._every_s:
            return False
        self._taken_s = at
        return True

    def next_span_s(self, answer: Answer, span_s: float) -> float:
        """A span whose answer is about as large as wanted, in whole scrape intervals."""
        samples = sum(len(one["values"]) for one in answer.series if "values" in one)
        wanted_s = span_s * min(4.0, _WANTED_SAMPLES / max(1, samples))
        if self._interval_s:
            wanted_s = min(wanted_s, MOST_POINTS * self._interval_s)
            wanted_s = max(1, wanted_s // self._interval_s) * self._interval_s
        return float(min(_LONGEST_S, max(_SHORTEST_S, round(wanted_s))))
