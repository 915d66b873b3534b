"""An engine as a table of what happens to each request: what it would write on its page, and the truth beside it.

No clock and no I/O: a page is a pure function of the requests and an instant, so nothing here counts increases. Three
dialects, told apart by what an engine observes and when (the engine tables in ``collector/engines`` say the same):

- ``vllm``: TTFT at the first token, also of requests that are aborted later; everything else at finish. A client that
  hangs up leaves no finished entry, but its HTTP answer is counted when it ends.
- ``sglang``: the finished counter and E2E hold aborted requests; a counter of abort calls; series split by streaming;
  TPOT only of requests that ended well with two tokens or more; series are born at their first event. A retracted
  request waits in the queue.
- ``trtllm``: everything at finish, of survivors only; errors in a counter of their own; no arrivals.

An event at the instant of a scrape is on that page, and belongs to the window that the scrape ends.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from goodwatch.core.model import Histogram, Limits, Sample, Scrape

Kind = Literal["vllm", "sglang", "trtllm"]
Fate = Literal["finished", "aborted", "error", "killed", "running"]

INF: Final = math.inf
_VLLM: Final = {  # bucket bounds on the page of vLLM 0.32.0
    "ttft_seconds": (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
        160.0, 640.0, 2560.0, INF,
    ),
    "tpot_seconds": (
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, INF,
    ),
    "e2e_seconds": (
        0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
        1920.0, 7680.0, INF,
    ),
    "output_length_tokens": (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, INF),
}  # fmt: skip
_SGLANG: Final = {  # bucket bounds on the page of SGLang 0.5.23
    "ttft_seconds": (
        0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0, INF,
    ),
    "tpot_seconds": (
        0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8,
        1.0, 2.0, 4.0, 6.0, 8.0, INF,
    ),
    "e2e_seconds": (
        0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0, 600.0,
        1200.0, 1800.0, 2400.0, INF,
    ),
    "output_length_tokens": (100.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, INF),
}  # fmt: skip
BOUNDS: Final[dict[Kind, dict[str, tuple[float, ...]]]] = {"vllm": _VLLM, "sglang": _SGLANG, "trtllm": _VLLM}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it would go if nobody interfered; all times in milliseconds, so that they are exact."""

    arrived_ms: int
    queue_ms: int = 0
    prefill_ms: int = 100
    gap_ms: int = 20  # between two tokens
    tokens: int = 5
    streamed: bool = True
    rank: int = 0
    hangs_up_ms: int | None = None  # the client, so long after its arrival
    fails_ms: int | None = None  # the engine, so long after its arrival
    paused_ms: int = 0  # preempted right after the first token, for so long

    @property
    def first_ms(self) -> int:
        """When its first token would come."""
        return self.arrived_ms + self.queue_ms + self.prefill_ms

    @property
    def last_ms(self) -> int:
        """When its last token would come; a preempted request of one token is over before it is thrown out."""
        return self.first_ms + (0 if self.tokens == 1 else self.paused_ms + (self.tokens - 1) * self.gap_ms)


@dataclass(frozen=True, slots=True)
class Told:
    """The truth of one request in one life of the engine. Times in seconds; None did not happen."""

    request: Request
    fate: Fate
    first_s: float | None
    ended_s: float | None

    @property
    def ttft_s(self) -> float | None:
        """Arrival to first token."""
        return None if self.first_s is None else self.first_s - self.request.arrived_ms / 1000

    @property
    def e2e_s(self) -> float | None:
        """Arrival to the end, whatever it was."""
        return None if self.ended_s is None else self.ended_s - self.request.arrived_ms / 1000

    @property
    def tpot_s(self) -> float | None:
        """(E2E - TTFT) / (tokens - 1); None below two tokens (design §3)."""
        if self.request.tokens < 2 or self.e2e_s is None or self.ttft_s is None:
            return None
        return (self.e2e_s - self.ttft_s) / (self.request.tokens - 1)

    def good(self, limits: Limits, *, judged_streamed: bool) -> bool:
        """Finished within every target; one output token meets any TPOT target; not streamed: E2E only (design §4)."""
        if self.fate != "finished" or self.e2e_s is None or self.ttft_s is None:
            return False
        met = limits.e2e_s is None or self.e2e_s <= limits.e2e_s
        if self.request.streamed or judged_streamed:
            met = met and (limits.ttft_s is None or self.ttft_s <= limits.ttft_s)
            met = met and (limits.tpot_s is None or self.tpot_s is None or self.tpot_s <= limits.tpot_s)
        return met

    def missed_before_it_hung_up(self, limits: Limits, *, judged_streamed: bool) -> bool:
        """Whether a TTFT or E2E target was over when the client hung up: then it is valid and bad (design §4)."""
        assert self.ended_s is not None
        waited = self.ended_s - self.request.arrived_ms / 1000
        late = limits.e2e_s is not None and waited > limits.e2e_s
        if limits.ttft_s is not None and (self.request.streamed or judged_streamed):
            late = late or (waited if self.ttft_s is None else self.ttft_s) > limits.ttft_s
        return late


@dataclass(frozen=True, slots=True)
class Simulated:
    """One engine process after another on one target: ``lives`` are (start, end) in milliseconds, None lives on."""

    kind: Kind
    requests: tuple[Request, ...]
    lives: tuple[tuple[int, int | None], ...] = ((0, None),)
    ranks: int = 1
    target: str = "t"
    model: str = "m"
    extra_abort_calls: int = 0  # abort calls that stopped nothing (SGLang counts calls), one with each of the first

    def life_at(self, at_ms: int) -> tuple[int, int | None] | None:
        """The process that answers at an instant; None when it is down."""
        return next((life for life in self.lives if life[0] <= at_ms and (life[1] is None or at_ms < life[1])), None)

    def told(self, life: tuple[int, int | None], until_ms: float = INF) -> list[Told]:
        """What became of every request that reached this process, up to and with an instant."""
        start, end = life
        reached = [
            r for r in self.requests if start <= r.arrived_ms <= until_ms and (end is None or r.arrived_ms < end)
        ]
        return [_told(r, end, until_ms) for r in reached]

    def ended_in(self, after_ms: int, until_ms: int) -> list[Told]:
        """Requests that ended in ``(after, until]`` in any process, killed ones left out."""
        every = [t for life in self.lives for t in self.told(life)]
        return [t for t in every if t.ended_s is not None and t.fate != "killed" and _in(t.ended_s, after_ms, until_ms)]

    def first_tokens_in(self, after_ms: int, until_ms: int) -> list[Told]:
        """Requests whose first token came in ``(after, until]``."""
        every = [t for life in self.lives for t in self.told(life)]
        return [t for t in every if t.first_s is not None and _in(t.first_s, after_ms, until_ms)]

    def scrape(self, at_ms: int, *, fails: bool = False) -> Scrape:
        """The scrape at an instant; it fails while the process is down."""
        life = self.life_at(at_ms)
        if life is None or fails:
            return Scrape(at_ms / 1000, self.target, "s", up=False, duration_s=0.01, reason="refused", error="refused")
        return Scrape(at_ms / 1000, self.target, "s", up=True, duration_s=0.01, samples=self._page(life, at_ms))

    def _page(self, life: tuple[int, int | None], at_ms: int) -> tuple[Sample, ...]:
        page = Page(self, at_ms)
        told = self.told(life, at_ms)
        for rank in range(self.ranks):
            mine = [t for t in told if t.request.rank % self.ranks == rank]
            _WRITE[self.kind](page, mine, f"engine={rank}" if self.ranks > 1 else "")
        if self.kind == "vllm":
            page.gauge("process_start_seconds", 1e9 + life[0] / 1000, "")
            page.counter("http_requests_total", sum(_status(t) == "2xx" for t in told), "", "status=2xx", born=True)
            page.counter("http_requests_total", sum(_status(t) == "5xx" for t in told), "", "status=5xx", born=True)
        if self.kind == "sglang":
            answered = sum(t.ended_s is not None for t in told)
            page.counter("http_requests_total", answered, "", "status=200", born=True)
        return tuple(page.samples)


class Page:
    """The samples of one page while it is written."""

    def __init__(self, engine: Simulated, at_ms: int) -> None:
        self.engine = engine
        self.at_ms = at_ms
        self.samples: list[Sample] = []

    def gauge(self, signal: str, value: float, rank: str) -> None:
        """Write a gauge."""
        self._add(signal, "", rank, float(value), None)

    def counter(self, signal: str, value: float, rank: str, part: str = "", *, born: bool = False) -> None:
        """Write a counter; ``born`` ones are not there before their first event."""
        if value or not born:
            self._add(signal, part, rank, float(value), None)

    def histogram(self, signal: str, values: Iterable[float], rank: str, part: str = "", *, born: bool = False) -> None:
        """Write a histogram with the bounds of the engine."""
        seen = list(values)
        if seen or not born:
            self._add(signal, part, rank, None, histogram(seen, BOUNDS[self.engine.kind][signal]))

    def _add(self, signal: str, part: str, rank: str, value: float | None, whole: Histogram | None) -> None:
        one = self.engine
        ts = self.at_ms / 1000
        self.samples.append(Sample(ts, one.target, "s", one.model, one.kind, "", rank, signal, part, value, whole))


def histogram(values: Sequence[float], bounds: Sequence[float]) -> Histogram:
    """A cumulative histogram by counting."""
    counts = tuple(float(sum(v <= b for v in values)) for b in bounds)
    return Histogram(tuple(bounds), counts, math.fsum(values))


def _told(r: Request, killed_ms: int | None, until_ms: float) -> Told:
    ends: list[tuple[int, Fate]] = [(r.last_ms, "finished")]
    if r.hangs_up_ms is not None:
        ends.append((r.arrived_ms + r.hangs_up_ms, "aborted"))
    if r.fails_ms is not None:
        ends.append((r.arrived_ms + r.fails_ms, "error"))
    ended, fate = min(ends, key=lambda e: e[0])  # what the engine finished first, it finished
    if killed_ms is not None and ended >= killed_ms:
        ended, fate = killed_ms, "killed"
    before = min(ended, until_ms) if fate in ("finished", "running") else min(ended - 1, until_ms)
    first = r.first_ms / 1000 if r.first_ms <= before else None
    if ended > until_ms:
        return Told(r, "running", first, None)
    return Told(r, fate, first, ended / 1000)


def _in(at_s: float, after_ms: int, until_ms: int) -> bool:
    return after_ms < round(at_s * 1000) <= until_ms


def _status(t: Told) -> str:
    if t.ended_s is None:
        return ""
    return "5xx" if t.fate == "error" and t.first_s is None else "2xx"  # the status goes out with the first token


def _load(page: Page, told: list[Told], rank: str) -> None:
    """Running and waiting now; a preempted request waits."""
    here = [t.request for t in told if t.fate == "running"]
    queued = [r for r in here if page.at_ms < r.arrived_ms + r.queue_ms or 0 <= page.at_ms - r.first_ms < r.paused_ms]
    page.gauge("requests_running", len(here) - len(queued), rank)
    page.gauge("requests_waiting", len(queued), rank)
    page.gauge("kv_cache_used_ratio", min(1.0, len(here) / 20), rank)


def _tokens(t: Told, at_ms: int) -> int:
    """Output tokens made by an instant."""
    if t.first_s is None:
        return 0
    r = t.request
    until = at_ms if t.ended_s is None else round(t.ended_s * 1000)
    return min(r.tokens, 1 + max(0, until - r.first_ms - r.paused_ms) // max(1, r.gap_ms))


def _vllm(page: Page, told: list[Told], rank: str) -> None:
    _load(page, told, rank)
    over = [t for t in told if t.fate in ("finished", "error")]
    page.histogram("ttft_seconds", [t.ttft_s for t in told if t.ttft_s is not None], rank)
    page.histogram("tpot_seconds", [t.tpot_s or 0.0 for t in over], rank)
    page.histogram("e2e_seconds", [t.e2e_s for t in over if t.e2e_s is not None], rank)
    page.histogram("output_length_tokens", [_tokens(t, page.at_ms) for t in over], rank)
    for reason, fate in (("stop", "finished"), ("length", ""), ("abort", ""), ("error", "error")):
        count = sum(t.fate == fate for t in told)
        page.counter("requests_finished_total", count, rank, f"finished_reason={reason}")
    page.counter("output_tokens_total", sum(_tokens(t, page.at_ms) for t in told), rank)
    page.counter("input_tokens_total", sum(10 for t in told if t.first_s is not None), rank)
    page.counter("preemptions_total", _preempted(told), rank)


def _preempted(told: list[Told]) -> int:
    return sum(t.first_s is not None and t.request.paused_ms > 0 and t.request.tokens > 1 for t in told)


def _sglang(page: Page, told: list[Told], rank: str) -> None:
    _load(page, told, rank)
    over = [t for t in told if t.ended_s is not None]
    for streamed in (True, False):
        part = f"is_streaming={str(streamed).lower()}"
        mine = [t for t in over if t.request.streamed is streamed]
        seen = [t for t in told if t.request.streamed is streamed and t.first_s is not None]
        if not streamed:  # an answer in one piece: its first output is its last
            seen = [t for t in seen if t.fate == "finished"]
        first = [(t.ttft_s if streamed else t.e2e_s) or 0.0 for t in seen]
        first += [t.e2e_s or 0.0 for t in mine if t.fate == "aborted" and t not in seen]
        tpot = [t.tpot_s for t in mine if t.fate == "finished" and t.tpot_s is not None]
        page.histogram("ttft_seconds", first, rank, part, born=True)
        page.histogram("tpot_seconds", tpot, rank, part, born=True)
        page.histogram("e2e_seconds", [t.e2e_s or 0.0 for t in mine], rank, part, born=True)
    page.counter("preemptions_total", _preempted(told), rank, born=True)
    aborted = sum(t.fate == "aborted" for t in over)
    calls = aborted + min(aborted, page.engine.extra_abort_calls)
    page.counter("requests_finished_total", len(over), rank, born=True)
    page.counter("requests_aborted_total", calls, rank, born=True)
    page.counter("output_tokens_total", sum(_tokens(t, page.at_ms) for t in over), rank, born=True)
    page.counter("realtime_tokens_total", sum(_tokens(t, page.at_ms) for t in told), rank, "mode=decode", born=True)


def _trtllm(page: Page, told: list[Told], rank: str) -> None:
    _load(page, told, rank)
    over = [t for t in told if t.fate == "finished"]
    page.histogram("ttft_seconds", [t.ttft_s or 0.0 for t in over], rank, born=True)
    page.histogram("tpot_seconds", [t.tpot_s for t in over if t.tpot_s is not None], rank, born=True)
    page.histogram("e2e_seconds", [t.e2e_s or 0.0 for t in over], rank, born=True)
    page.counter("requests_finished_total", len(over), rank, "finished_reason=stop", born=True)
    page.counter("requests_failed_total", sum(t.fate == "error" for t in told), rank, born=True)
    page.counter("output_tokens_total", sum(t.request.tokens for t in over), rank, born=True)


_WRITE: Final = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}
