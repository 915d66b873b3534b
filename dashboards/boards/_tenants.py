"""Tenants on a board: who of them gets what the service promises, from requests that were counted one by one."""

from typing import Final

from dashboards.boards._own import BAD_REQUESTS_PAGE, ROW_TO_TENANT, TENANT_PAGE
from dashboards.boards._tables import Column, joined
from dashboards.promql import RATE, SERVICE, ratio, summed
from dashboards.values import Panel, Query

_REQUESTS, _TOKENS = "goodwatch_tenant_requests_total", "goodwatch_tenant_output_tokens_total"
_PICKED: Final = f'{SERVICE},tenant=~"$tenant"'
_BY: Final = ("service", "tenant")
_RANGE: Final = "[$__range]"
_NO_SPANS: Final = "No request spans yet: they come by OTLP (docs/configuration.md)"
_WHO: Final = (
    "Requests that settled, counted one by one; tenant unknown is those that nobody told, and other those of tenants beyond the first "
    "hundred."
)


def tenants() -> tuple[Panel, ...]:
    """Panels of the picked tenants."""
    return (
        _table(),
        Panel(
            "timeseries", "Attainment by tenant", f"Good over valid requests. {_WHO} Series: {_REQUESTS}.",
            (Query(_attained(RATE), "{{service}} {{tenant}}"),), "percentunit", 8, 8, no_data=_NO_SPANS, low=0, high=1,
            links=(TENANT_PAGE, BAD_REQUESTS_PAGE),
        ),
        Panel(
            "timeseries", "Requests by tenant", f"Requests a second. {_WHO} Series: {_REQUESTS}.",
            (Query(summed(_BY, f"rate({_REQUESTS}{{{_PICKED}}}{RATE})"), "{{service}} {{tenant}}"),), "reqps", 8, 8, no_data=_NO_SPANS, low=0,
            links=(TENANT_PAGE,), custom={"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30},
        ),
        Panel(
            "timeseries", "Output tokens by tenant", f"Generated tokens a second of requests that settled. {_WHO} Series: {_TOKENS}.",
            (Query(summed(_BY, f"rate({_TOKENS}{{{_PICKED}}}{RATE})"), "{{service}} {{tenant}}"),), "short", 8, 8, no_data=_NO_SPANS, low=0,
            links=(TENANT_PAGE,), custom={"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30},
        ),
    )  # fmt: skip


def _attained(over: str) -> str:
    good, valid = (
        summed(_BY, f"rate({_REQUESTS}{{{_PICKED},{verdict}}}{over})")
        for verdict in ('verdict="good"', 'verdict=~"good|bad"')
    )
    return ratio(good, valid)


def _table() -> Panel:
    columns = (
        Column("attainment", _attained(_RANGE), "percentunit", decimals=2),
        Column("requests", summed(_BY, f"increase({_REQUESTS}{{{_PICKED}}}{_RANGE})"), decimals=0),
        Column("bad", summed(_BY, f'increase({_REQUESTS}{{{_PICKED},verdict="bad"}}{_RANGE})'), decimals=0),
        Column("output tokens", summed(_BY, f"increase({_TOKENS}{{{_PICKED}}}{_RANGE})"), decimals=0),
    )
    return joined(
        "Tenants, least attained first", f"One row a tenant and service, over the time that is shown. {_WHO} Series: {_REQUESTS}, {_TOKENS}.",
        columns, ("tenant", "service"), links=(ROW_TO_TENANT,), sort="attainment", width=24, height=7, no_data=_NO_SPANS,
    )  # fmt: skip
