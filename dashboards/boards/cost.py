"""Cost and capacity: what a token costs, how much of it is idle, and what runs out first."""

from typing import Final

from dashboards.boards._own import (
    ABSENT,
    COSTS_PAGE,
    NOTES,
    OVERVIEW,
    PAGE,
    ROW_TO_PAGE,
    ROW_TO_SERVICE,
    SERVICE_PICKER,
    exact,
    number,
    page_variable,
)
from dashboards.boards._tables import Column, joined
from dashboards.promql import FLEET
from dashboards.values import Board, Options, Panel, Query, Row

_UNPRICED: Final = "No price for these targets, or no tokens"
_WHY_NO_DEVICES: Final = "no exporter of accelerators is joined to the targets"
_WHY_NO_GOOD: Final = "a good token has a cost only where requests are counted one by one and the targets have a price"
_NO_DEVICES: Final = "No accelerator exporter is joined to these targets (docs/accelerators.md)"


def cost(options: Options) -> Board:
    """The board of money and room."""
    rows = (
        Row("What does a token cost, and how much is paid for nothing?", (*_now(), _table())),
        Row("Over time", _trends()),
        Row("What runs out first?", _room()),
        Row("Energy and devices", _devices()),
    )
    return Board(
        "goodwatch-cost", "Cost and capacity", "What does a token cost, how much is paid for nothing, and what runs out first?", rows,
        (SERVICE_PICKER, page_variable(options.url)), NOTES, ("cost",), "now-24h", "1m",
    )  # fmt: skip


def _now() -> tuple[Panel, ...]:
    held, idle = f"sum(goodwatch_usd_per_hour{{{FLEET}}})", f"sum(goodwatch_idle_usd_per_hour{{{FLEET}}})"
    tokens = f"sum(goodwatch_output_tokens_per_second{{{FLEET}}} and on (service) goodwatch_usd_per_hour{{{FLEET}}})"
    return (
        Panel(
            "stat", "Cost an hour", "Price of all GPUs held, busy or idle. Series: goodwatch_usd_per_hour.",
            (Query(held, "", "now"),), "currencyUSD", 6, 5, no_data=_UNPRICED, links=(COSTS_PAGE,),
        ),
        Panel(
            "stat", "Idle cost an hour", "Price of the GPUs held in the share of the window in which nothing ran. "
            "Series: goodwatch_idle_usd_per_hour.",
            (Query(idle, "", "now"),), "currencyUSD", 6, 5, no_data=_UNPRICED, links=(COSTS_PAGE,),
        ),
        Panel(
            "stat", "A million output tokens", "All dollars an hour over all output tokens an hour of the services that have a price: sums, not a "
            "mean of the services' costs. Series: goodwatch_usd_per_hour, goodwatch_output_tokens_per_second.",
            (Query(f"1e6 * {held} / ({tokens} * 3600 > 0)", "", "now"),), "currencyUSD", 6, 5, no_data=_UNPRICED, links=(COSTS_PAGE,),
        ),
        Panel(
            "stat", "Output tokens a second", "Generated tokens a second, added up over services. Series: goodwatch_output_tokens_per_second.",
            (Query(f"sum(goodwatch_output_tokens_per_second{{{FLEET}}})", "", "now"),), "short", 6, 5, no_data=ABSENT, links=(OVERVIEW,),
        ),
    )  # fmt: skip


def _table() -> Panel:
    def of(name: str) -> str:
        return f"max by (service) (goodwatch_{name}{{{FLEET}}})"

    columns = (
        Column("USD/h", of("usd_per_hour"), "currencyUSD"),
        Column("idle USD/h", of("idle_usd_per_hour"), "currencyUSD"),
        Column("idle", of("idle_ratio"), "percentunit", decimals=0),
        Column("USD/M output", of("usd_per_million_output_tokens"), "currencyUSD"),
        Column("USD/M all tokens", of("usd_per_million_tokens"), "currencyUSD"),
        Column("USD/M good", of("usd_per_million_good_tokens"), "currencyUSD"),
        Column("output tokens/s", of("output_tokens_per_second"), decimals=0),
        Column("KV cache, fullest", of("kv_cache_used_max_ratio"), "percentunit", decimals=0),
    )
    return joined(
        "Services, dearest first", "One row a service: price of the GPUs held over goodwatch's window, idle time in it, over tokens of the window; "
        "USD/M is dollars for a million of them. A good token is one of a request that met every target; it has a cost only where requests are counted one by one.",
        columns, ("service",), links=(ROW_TO_SERVICE, ROW_TO_PAGE), sort="USD/h", sort_down=True, width=24, height=8, no_data=_UNPRICED, why_empty=_WHY_NO_GOOD,
    )  # fmt: skip


def _trends() -> tuple[Panel, ...]:
    return (
        exact("usd_per_hour", "Cost an hour, by service", scope=FLEET, no_data=_UNPRICED, low=0),
        exact("usd_per_million_output_tokens", "Cost of a million output tokens", scope=FLEET, no_data=_UNPRICED, low=0),
        number(
            "usd_per_million_good_tokens", "Cost of a million good tokens", scope=FLEET, low=0,
            no_data="No price, or requests are not counted one by one (they come by OTLP)", why_empty=_WHY_NO_GOOD,
        ),
        exact("idle_ratio", "Idle share of the time", scope=FLEET, low=0, high=1, width=12),
        exact("output_tokens_per_s", "Output tokens a second, by service", scope=FLEET, low=0, width=12),
    )  # fmt: skip


def _room() -> tuple[Panel, ...]:
    return (
        exact("kv_cache_used_max_ratio", "KV cache, fullest engine", scope=FLEET, low=0, high=1, no_data="No KV gauge: this engine has none, or no data"),
        exact("requests_running", "Running requests", scope=FLEET, low=0),
        exact("requests_waiting", "Waiting requests", scope=FLEET, low=0),
    )  # fmt: skip


def _devices() -> tuple[Panel, ...]:
    busy = (
        "Share of time in which the devices did any work. Busy is not useful: one request can keep a GPU at 100 %. "
        "Series: goodwatch_gpu_utilisation_ratio."
    )
    return (
        exact("gpu_power_watts", "Power of the devices", scope=FLEET, low=0, width=6, no_data=_NO_DEVICES, why_empty=_WHY_NO_DEVICES),
        exact("gpu_memory_used_ratio", "Device memory in use", scope=FLEET, low=0, high=1, width=6, no_data=_NO_DEVICES, why_empty=_WHY_NO_DEVICES),
        exact("gpu_utilisation_ratio", "Devices busy", scope=FLEET, low=0, high=1, width=6, no_data=_NO_DEVICES, why_empty=_WHY_NO_DEVICES, description=busy),
        Panel(
            "timeseries", "Energy of a million output tokens", "Energy of the devices held over the window, idle time in it, over output tokens. "
            "Series: goodwatch_energy_joules_per_million_output_tokens.",
            (Query(f"goodwatch_energy_joules_per_million_output_tokens{{{FLEET}}}", "{{service}}"),), "joule", 6, no_data=_NO_DEVICES, why_empty=_WHY_NO_DEVICES,
            links=(PAGE,), low=0,
        ),
    )  # fmt: skip
