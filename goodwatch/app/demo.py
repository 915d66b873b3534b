"""The demo's engines: pages recorded from real engines under load, played in a loop; and the history before now.

Each play is one recording with its long waits for a start cut to seconds. Nothing in a page is changed. A loop ends
with the engine going away and begins with it coming back, so its counters begin again: a restart, and shown as one.
"""

import json
import lzma
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Final

from collector.pipeline import TargetReader, Understood
from goodwatch.app.fleet import TargetState
from goodwatch.core.engine import Engine
from goodwatch.core.model import Scrape, Target
from goodwatch.core.ports import SampleStore
from goodwatch.signals.increments import fold, rows_frame

#: (recording, service, version that the engine's own endpoint would tell, where in the loop "now" is at the start)
PLAYS: Final = (
    ("vllm-0.32.0", "chat", "0.32.0", 60.0),
    ("sglang-0.5.23", "assistant", "0.5.23", 440.0),
    ("vllm-0.12.0", "batch", "0.12.0", 230.0),
)
#: flags that the recorded engines ran with, by engine
ARGS: Final = {
    "vllm": "--max-num-seqs 16 --max-num-batched-tokens 2048 --max-model-len 2048",
    "sglang": "--max-running-requests 16 --max-total-tokens 8192 --context-length 2048",
}
NOTE: Final = (
    "This is a replay: pages recorded from real vLLM and SGLang engines with a tiny model on two CPU cores, served "
    "over HTTP in a loop and scraped like any engine. Each loop looks like a restart."
)
#: Samples of the last half hour are written as samples too; the rest of the history as minutes only.
_SAMPLES_S: Final = 1800.0

CONFIG: Final = """\
# goodwatch demo: three services on a replay of recorded engines
listen: {listen}
otlp:
  http: 127.0.0.1:0
  grpc: null
  settle: 10s
  origins:
{origins}
data_dir: {data_dir}
scrape: {{interval: 5s, timeout: 3s}}
derive: {{every: 5s, window: 1m}}
services:
  - name: chat
    description: vLLM 0.32, interactive
    slo: {{ttft: 500ms, tpot: 50ms, objective: 0.95}}
  - name: assistant
    description: SGLang 0.5.23, interactive
    slo: {{ttft: 2s, tpot: 100ms, objective: 0.9}}
  - name: batch
    description: vLLM 0.12, long answers
    slo: {{ttft: 5s, tpot: 50ms, objective: 0.9}}
targets:
{targets}
"""


@dataclass(frozen=True, slots=True)
class Page:
    """One recorded answer at its place in the loop; ``body`` is None where the engine did not answer."""

    at_s: float
    body: str | None
    content_type: str


@dataclass(slots=True)
class Play:
    """One recording in a loop. ``began_s`` is when some loop began, in Unix seconds."""

    name: str
    service: str
    version: str
    pages: tuple[Page, ...]
    began_s: float
    _starts: list[float] = field(default_factory=list)

    @classmethod
    def load(cls, name: str, service: str, version: str, *, now_s: float, at_s: float) -> "Play":
        """A play whose loop is ``at_s`` seconds along at ``now_s``."""
        packed = files("goodwatch.app").joinpath(f"demo_data/{name}.jsonl.xz").read_bytes()
        rows = [json.loads(line) for line in lzma.decompress(packed).decode().splitlines()]
        pages = tuple(Page(r["at_s"], r.get("body"), r.get("content_type", "")) for r in rows)
        return cls(name, service, version, pages, now_s - at_s, [p.at_s for p in pages])

    @property
    def length_s(self) -> float:
        """Length of one loop."""
        return self.pages[-1].at_s + 1.0

    def at(self, now_s: float) -> Page:
        """The page that the engine shows at a time."""
        return self.pages[self._index(now_s)]

    def _index(self, now_s: float) -> int:
        return max(0, bisect_right(self._starts, (now_s - self.began_s) % self.length_s) - 1)

    def times(self, start_s: float, end_s: float) -> Iterator[tuple[float, int]]:
        """(time, index of the page) of every recorded page of every loop in ``[start_s, end_s)``."""
        loop = int((start_s - self.began_s) // self.length_s)
        while self.began_s + loop * self.length_s < end_s:
            base = self.began_s + loop * self.length_s
            for index, page in enumerate(self.pages):
                if start_s <= base + page.at_s < end_s:
                    yield base + page.at_s, index
            loop += 1


def loaded(now_s: float) -> tuple[Play, ...]:
    """All plays of the demo."""
    return tuple(Play.load(name, service, version, now_s=now_s, at_s=at) for name, service, version, at in PLAYS)


def config_text(listen: str, data_dir: str, urls: Mapping[str, str]) -> str:
    """The demo's configuration, as a file that a reader could have written. ``urls`` by play name."""
    targets, origins = [], []
    for name, service, _, _ in PLAYS:
        targets.append(
            f"  - {{url: {urls[name]}, name: {name}, service: {service}, gpus: 1, gpu_hour_usd: 2.5,\n"
            f'     args: "{ARGS[name.partition("-")[0]]}"}}'
        )
        origins.append(f"    - {{match: {{service.name: {service}}}, service: {service}, model: tiny, target: {name}}}")
    return CONFIG.format(
        listen=listen, data_dir=json.dumps(data_dir), targets="\n".join(targets), origins="\n".join(origins)
    )


def backfill(state: TargetState, play: Play, store: SampleStore, *, start_s: float, end_s: float) -> int:
    """Give a target the history of a play: through the reader and the tracker, into the store. Blocking.

    Returns the number of scrapes. Each recorded page is parsed once, then stamped with each of its times.
    """
    state.reader.told_version = play.version
    read = _Pages(state.reader, play)
    rows, scrapes = [], []
    for ts, index in play.times(start_s, end_s):
        scrape = read.scrape(index, ts)
        state.understood = read.understood[index] or state.understood
        state.take(scrape)
        rows += state.steps[-1][1]
        scrapes.append(scrape)
    until = end_s // 60 * 60
    store.append_minutes(fold(rows_frame([r for r in rows if r["minute_s"] < until])))
    store.append([s for s in scrapes if s.ts >= end_s - _SAMPLES_S])
    state.unfolded = {m for m in state.unfolded if m >= until}
    return len(scrapes)


class _Pages:
    """Every page of a play, understood once."""

    def __init__(self, reader: TargetReader, play: Play) -> None:
        self.target: Target = reader.target
        self.understood: list[Understood | None] = [
            None if p.body is None else reader.understand(p.body, p.content_type) for p in play.pages
        ]
        self._scrapes = [
            _failed(self.target) if understood is None else reader.scrape(understood, 0.0, 0.02, len(page.body or ""))
            for understood, page in zip(self.understood, play.pages, strict=True)
        ]

    def scrape(self, index: int, ts: float) -> Scrape:
        """The scrape of one page at a time."""
        one = self._scrapes[index]
        return replace(one, ts=ts, samples=tuple(replace(s, ts=ts) for s in one.samples))


def _failed(target: Target) -> Scrape:
    return Scrape(
        0.0, target.name, target.service, up=False, duration_s=0.0, error="the engine was away", reason="refused"
    )


def engine_of(play: Play, engines: Mapping[str, Engine]) -> Engine:
    """The engine table of a play, by its recording's name."""
    return engines[play.name.partition("-")[0]]
