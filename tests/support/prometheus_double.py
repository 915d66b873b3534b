"""A loopback server that answers a Prometheus' queries from series in memory, as far as goodwatch asks them."""

import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.engine_server import engine_server
from tests.support.prometheus_answers import matrix


@dataclass
class PrometheusDouble:
    """What it has and how it answers; both may be changed while it runs."""

    stored: list[dict[str, Any]]
    status: int = 200
    more: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    asked: int = 0

    @property
    def place(self) -> str:
        return self.url.removeprefix("http://")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.status != 200:
            return web.json_response({"status": "error", "error": "not today"}, status=self.status)
        query, at_s = request.query["query"], float(request.query["time"])
        span = re.search(r"\[(\d+)ms\]", query)
        assert span is not None
        found = [self._cut(one, at_s - int(span[1]) / 1000, at_s) for one in self.stored if self._wanted(one, query)]
        found = [one for one in found if one["values"]]
        if query.startswith("count by"):
            names = sorted({one["metric"]["instance"] for one in found})
            vector = [{"metric": {"instance": name}, "value": [at_s, "1"]} for name in names]
            return web.json_response({"status": "success", "data": {"resultType": "vector", "result": vector}})
        return web.json_response(matrix(found, **self.more))

    @staticmethod
    def _cut(one: dict[str, Any], begin_s: float, end_s: float) -> dict[str, Any]:
        return {**one, "values": [v for v in one["values"] if begin_s < v[0] <= end_s]}

    @staticmethod
    def _wanted(one: dict[str, Any], query: str) -> bool:
        """By equal labels and by names, as the query says."""
        names = re.search(r'__name__=~"([^"]*)"', query)
        assert names is not None
        equal = re.findall(r'(\w+)="([^"]*)"', query)
        labels = one["metric"]
        return bool(re.fullmatch(names[1], labels["__name__"])) and all(labels.get(k) == v for k, v in equal)


@contextlib.asynccontextmanager
async def prometheus_double(
    stored: Sequence[dict[str, Any]], *, status: int = 200, **more: Any
) -> AsyncIterator[PrometheusDouble]:
    """Serve these series on a free loopback port; ``more`` goes into the envelope of each answer."""
    double = PrometheusDouble(list(stored), status, more)
    async with engine_server({"/api/v1/query": double.answer}) as server:
        double.url = server.url("")
        yield double
