"""Answers as a Prometheus gives them, and an asker that gives prepared ones instead of asking."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collector.pull import Answer

Values = Sequence[tuple[float, float]]


def series(name: str, values: Values, **labels: str) -> dict[str, Any]:
    """One series of a range vector, labels of one vLLM target unless others are given."""
    metric = {"__name__": name, "job": "vllm", "instance": "gpu-1:8000", **labels}
    return {"metric": metric, "values": [[at, f"{value:g}"] for at, value in values]}


def page(at: float, finished: float, *, running: float = 0.0, **labels: str) -> list[dict[str, Any]]:
    """One scrape of a small vLLM: three native series and what Prometheus adds."""
    return pages({at: (finished, running)}, **labels)


def pages(found: Mapping[float, tuple[float, float]], **labels: str) -> list[dict[str, Any]]:
    """Scrapes by time: finished requests so far, and running ones."""
    model = {"model_name": "tiny", **labels}
    finished = [(at, done) for at, (done, _) in found.items()]
    return [
        series("up", [(at, 1.0) for at in found], **labels),
        series("scrape_duration_seconds", [(at, 0.25) for at in found], **labels),
        series("vllm:request_success_total", finished, finished_reason="stop", **model),
        series("vllm:num_requests_running", [(at, busy) for at, (_, busy) in found.items()], **model),
        series("vllm:num_requests_waiting", [(at, 0.0) for at in found], **model),
    ]


def matrix(found: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """The envelope of a range vector."""
    return {"status": "success", "data": {"resultType": "matrix", "result": list(found)}, **more}


@dataclass
class PreparedAsker:
    """Answers each query by a function of the query and its time; remembers what was asked."""

    answer: Callable[[str, float], Answer]
    asked: list[tuple[str, float]] = field(default_factory=list)
    closed: bool = False

    def query(self, query: str, at_s: float) -> Answer:
        self.asked.append((query, at_s))
        return self.answer(query, at_s)

    def close(self) -> None:
        self.closed = True


@dataclass
class HandClock:
    """A clock that a test turns by hand."""

    at_s: float = 1_700_000_000.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds
