"""Series of requests by tenant: who gets what was promised. Each request enters once, when it settles.

Tenants are as many as senders make up, so only the first ``MAX_TENANTS`` pairs of service and tenant have series of their own; the others are added to
``other`` and counted.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import polars as pl
from prometheus_client import Metric

from exporters._families import label_text
from goodwatch.core.request import Verdict

#: pairs of service and tenant with series of their own
MAX_TENANTS: Final = 100
OTHER: Final = "other"
#: requests of which nobody told the tenant
UNTOLD: Final = "unknown"

_REQUESTS: Final = "goodwatch_tenant_requests"
_TOKENS: Final = "goodwatch_tenant_output_tokens"
_FOLDED: Final = "goodwatch_tenants_folded"

#: what is exported of tenants: name, type, labels, meaning
TENANT_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    (f"{_REQUESTS}_total", "counter", "service, tenant, verdict", "requests that settled, by what their SLO says; weighted by 1 / sampling probability"),
    (f"{_TOKENS}_total", "counter", "service, tenant", "output tokens of requests that settled"),
    (f"{_FOLDED}_total", "counter", "", "requests counted under tenant other: too many of them"),
)  # fmt: skip


@dataclass(slots=True)
class TenantSeries:
    """The series; ``add`` may run in another thread than ``families``."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _requests: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    _tokens: dict[tuple[str, str], float] = field(default_factory=dict)
    _folded: float = 0.0

    def add(self, judged: pl.DataFrame) -> None:
        """Count requests that settled: columns service, tenant, verdict, output_tokens, weight."""
        counted = (
            judged.select(
                pl.col("service").fill_null(""), pl.col("tenant").fill_null(UNTOLD), "verdict",
                w=pl.col("weight").fill_null(1.0), tokens=pl.col("output_tokens").fill_null(0),
            )
            .group_by("service", "tenant", "verdict", maintain_order=True)
            .agg(pl.len(), pl.col("w").sum(), tokens=(pl.col("tokens") * pl.col("w")).sum())
        )  # fmt: skip
        with self._lock:
            for service, tenant, verdict, seen, weight, tokens in counted.iter_rows():
                pair = self._pair(label_text(service), label_text(tenant), seen)
                self._requests[pair][verdict] += weight
                self._tokens[pair] += tokens

    def _pair(self, service: str, tenant: str, seen: int) -> tuple[str, str]:
        pair = (service, tenant)
        if pair not in self._requests and len(self._requests) >= MAX_TENANTS:
            self._folded += seen
            pair = (OTHER, OTHER)
        if pair not in self._requests:
            # all from the first on: a rate needs a zero to start from
            self._requests[pair] = {verdict.value: 0.0 for verdict in Verdict}
            self._tokens[pair] = 0.0
        return pair

    def families(self) -> Iterator[Metric]:
        """All families now."""
        with self._lock:
            requests = {pair: dict(by) for pair, by in self._requests.items()}
            tokens, folded = dict(self._tokens), self._folded
        texts = {name: text for name, _, _, text in TENANT_SERIES}
        family = Metric(_REQUESTS, texts[f"{_REQUESTS}_total"], "counter")
        for (service, tenant), by in sorted(requests.items()):
            for verdict, value in by.items():
                labels = {"service": service, "tenant": tenant, "verdict": verdict}
                family.add_sample(f"{_REQUESTS}_total", labels, value)
        yield family
        family = Metric(_TOKENS, texts[f"{_TOKENS}_total"], "counter")
        for (service, tenant), value in sorted(tokens.items()):
            family.add_sample(f"{_TOKENS}_total", {"service": service, "tenant": tenant}, value)
        yield family
        family = Metric(_FOLDED, texts[f"{_FOLDED}_total"], "counter")
        family.add_sample(f"{_FOLDED}_total", {}, folded)
        yield family
