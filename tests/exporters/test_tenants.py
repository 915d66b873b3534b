"""Series of tenants: each request enters once, nobody's made-up tenants fill the page."""

from typing import Any

import polars as pl

from exporters.tenants import MAX_TENANTS, OTHER, UNTOLD, TenantSeries
from tests.signals.request_parts import fact, facts


def judged(*rows: dict[str, Any]) -> pl.DataFrame:
    made = [{"service": "chat", "tenant": "acme", "verdict": "good", **row} for row in rows]
    verdicts = [str(row.pop("verdict")) for row in made]
    return facts(*(fact(**row) for row in made)).with_columns(verdict=pl.Series(verdicts))


def value(series: TenantSeries, name: str, **labels: str) -> float | None:
    found = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in series.families() for s in f.samples}
    return found.get((name, tuple(sorted(labels.items()))))


def test_a_tenant_s_requests_count_by_verdict_and_begin_at_zero() -> None:
    series = TenantSeries()
    series.add(judged({}, {}, {"verdict": "bad"}, {"tenant": "globex"}))
    acme = {"service": "chat", "tenant": "acme"}
    assert value(series, "goodwatch_tenant_requests_total", **acme, verdict="good") == 2
    assert value(series, "goodwatch_tenant_requests_total", **acme, verdict="bad") == 1
    assert value(series, "goodwatch_tenant_requests_total", **acme, verdict="not_valid") == 0
    assert value(series, "goodwatch_tenant_requests_total", service="chat", tenant="globex", verdict="good") == 1


def test_sampled_requests_count_for_those_that_were_not_kept_tokens_too() -> None:
    series = TenantSeries()
    series.add(judged({"weight": 10.0, "output_tokens": 7}, {"output_tokens": None}))
    acme = {"service": "chat", "tenant": "acme"}
    assert value(series, "goodwatch_tenant_requests_total", **acme, verdict="good") == 11
    assert value(series, "goodwatch_tenant_output_tokens_total", **acme) == 70


def test_a_tenant_that_nobody_told_is_not_lost() -> None:
    series = TenantSeries()
    series.add(judged({"tenant": None}))
    assert value(series, "goodwatch_tenant_requests_total", service="chat", tenant=UNTOLD, verdict="good") == 1


def test_tenants_beyond_the_limit_are_added_up_and_counted() -> None:
    series = TenantSeries()
    series.add(judged(*({"tenant": f"t{i:04}"} for i in range(MAX_TENANTS + 5))))
    assert value(series, "goodwatch_tenant_requests_total", service=OTHER, tenant=OTHER, verdict="good") == 5
    assert value(series, "goodwatch_tenants_folded_total") == 5
