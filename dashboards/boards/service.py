"""One service: whether it keeps its promise, and if not, where the time is lost."""

from dataclasses import replace
from typing import Final

from dashboards.boards._own import (
    ABSENT,
    ANY_REQUESTS_PAGE,
    BAD_REQUESTS_PAGE,
    BUDGET_STEPS,
    BURN_STEPS,
    DASHED,
    MAP_PAGE,
    MODEL_PICKER,
    NOTES,
    PAGE,
    REQUESTS_PAGE,
    ROW_TO_TARGET,
    SERVICE_PICKER,
    STATE_LOOKS,
    STATE_MAPPING,
    TARGET_PAGE,
    TARGET_PICKER,
    TENANT_PICKER,
    exact,
    latency,
    number,
    page_variable,
)  # fmt: skip
from dashboards.boards._quality import quality
from dashboards.boards._tables import KNOWN_LENGTHS, Column, joined, length_map
from dashboards.boards._tenants import tenants
from dashboards.boards.budget import OWN_BURN, OWN_LEFT, left
from dashboards.promql import EACH_TARGET, RATE, SERVICE, WHOLE, at_least, at_most
from dashboards.values import GREEN, ORANGE, RED, YELLOW, Board, Options, Override, Panel, Query, Row, Step

_RULES: Final = "From goodwatch's rules in Prometheus (goodwatch alerts build), else goodwatch's own number."
_NO_RULES: Final = "No SLO here yet"
_NO_SPANS: Final = "No request spans yet: they come by OTLP (docs/configuration.md)"


def service(options: Options) -> Board:
    """The board of one or a few services."""
    rows = (
        Row("Does it keep its promise?", _promise()),
        Row("Latency against its target", _latency(options)),
        Row("By length of the request", _lengths(options)),
        Row("Where the time goes", _stages()),
        Row("Traffic", _traffic()),
        Row("Cache and queue", _cache()),
        Row("Replicas compared", _replicas()),
        Row("Are the answers right?", quality()),
        Row("Does every tenant get it?", tenants()),
        Row("Cost", _cost()),
    )
    return Board(
        "goodwatch-service", "Service", "Does this service keep its promise, and if not, where is the time lost?", rows,
        (SERVICE_PICKER, MODEL_PICKER, TENANT_PICKER, TARGET_PICKER, page_variable(options.url)), NOTES, ("service",),
    )  # fmt: skip


def _promise() -> tuple[Panel, ...]:
    recorded = f"goodwatch:slo_error:ratio1h{{{SERVICE}}} / on (service, slo) group_left () goodwatch:slo_budget:ratio"
    worst = f'max by (service) ({recorded}) or max by (service) ({OWN_BURN}{{{SERVICE},window="1h"}})'
    return (
        Panel(
            "state-timeline", "State", "What goodwatch calls the service: good, warning, bad, no traffic or no data. "
            "Series: goodwatch_service_state.",
            (Query(f"goodwatch_service_state{{{SERVICE}}} > 0", "{{service}} {{state}}"),), "short", 7, 6, mappings=(STATE_MAPPING,), overrides=STATE_LOOKS,
            no_data="goodwatch knows no such service", links=(PAGE,),
        ),
        number("attainment_ratio", "Attainment now", kind="bargauge", width=6, height=6, low=0, high=1, decimals=2),
        Panel(
            "stat", "Objective", "Share of valid requests that must be good. Series: goodwatch_objective_ratio.",
            (Query(f"goodwatch_objective_ratio{{{SERVICE}}}", "{{service}}", "now"),), "percentunit", 3, 6, decimals=2,
            no_data="No objective was set", options={"graphMode": "none"}, links=(PAGE,),
        ),
        Panel(
            "stat", "Error budget left", f"1 minus bad events over the events that the budget allows, over the SLO's period. {_RULES} "
            f"Series: goodwatch:slo_budget_left:ratio, {OWN_LEFT}.",
            (Query(f"min by (service) ({left(SERVICE)})", "{{service}}", "now"),), "percentunit", 4, 6,
            BUDGET_STEPS, no_data=_NO_RULES, decimals=1, links=(PAGE,),
        ),
        Panel(
            "stat", "Burn rate, 1 h", f"Error ratio of the last hour over the budget: at 1 the budget lasts just the period. {_RULES} "
            f"Series: goodwatch:slo_error:ratio1h, goodwatch:slo_budget:ratio, {OWN_BURN}.",
            (Query(worst, "{{service}}", "now"),), "short", 4, 6, BURN_STEPS, no_data=_NO_RULES, decimals=1, links=(PAGE,),
        ),
        _attainment(),
        number("goodput_per_s", "Goodput", width=12, unit="reqps"),
    )  # fmt: skip


def _attainment() -> Panel:
    """Attainment over time, with the objective as a line."""
    panel = number("attainment_ratio", "Attainment", width=12, high=1, links=(BAD_REQUESTS_PAGE, PAGE))
    objective = Query(f"goodwatch_objective_ratio{{{SERVICE}}}", "{{service}} objective")
    look = Override(
        ".* objective$",
        (("color", {"mode": "fixed", "fixedColor": RED}), ("custom.fillOpacity", 0), DASHED),
        "byRegexp",
    )
    return replace(panel, queries=(*panel.queries, objective), overrides=(*panel.overrides, look))


def _latency(options: Options) -> tuple[Panel, ...]:
    bucket = f"goodwatch_request_ttft_seconds_bucket{{{SERVICE}}}"
    return (
        latency("ttft", "Time to first token", options.services),
        latency("tpot", "Time per output token", options.services),
        latency("e2e", "End to end", options.services),
        Panel(
            "heatmap", "Time to first token, all requests", "Requests of all models by their time to first token, from single requests that "
            "settled; dots are traces. Engine's clock. Series: goodwatch_request_ttft_seconds.",
            (Query(f"sum by (le) (increase({bucket}{RATE}))", "{{le}}", "buckets", exemplars=True),), "s", 12, 9, no_data=_NO_SPANS,
            links=(ANY_REQUESTS_PAGE,),
        ),
        Panel(
            "timeseries", "Time to first token, single requests", "Quantiles of single requests of all models that settled, interpolated inside a "
            "bucket; dots lead to traces. Engine's clock. Series: goodwatch_request_ttft_seconds.",
            tuple(
                Query(f"histogram_quantile({q}, sum by (le, service) (rate({bucket}{RATE})))", f"{{{{service}}}} p{q * 100:.0f}",
                      exemplars=q == 0.99)
                for q in (0.5, 0.9, 0.99)
            ),
            "s", 12, 9, no_data=_NO_SPANS, low=0, links=(REQUESTS_PAGE, PAGE),
        ),
    )  # fmt: skip


def _worst_colour(options: Options, signal: str, otherwise: float) -> float:
    """The value that is all red: twice the loosest target that was promised."""
    limits = [getattr(promise.limits, f"{signal}_s") for promise in options.services.values()]
    return 2 * max((limit for limit in limits if limit is not None), default=otherwise)


def _lengths(options: Options) -> tuple[Panel, ...]:
    text = "Bands of input tokens go down (by their lower end), of output tokens across. A cell with too few requests for the number is empty."

    def cells(name: str, more: str = "") -> str:
        return f"max by (input_band, output_band) ({name}{{{SERVICE},{KNOWN_LENGTHS}{more}}})"

    return (
        *(
            length_map(
                f"P99 of {title} by length", f"{text} Over the default range of goodwatch's map, engine's clock. Of several services "
                "the worst. Series: goodwatch_heatmap_seconds.",
                cells("goodwatch_heatmap_seconds", f',signal="{signal}",quantile="0.99"'), "s", width=12, height=9, high=_worst_colour(options, signal, usual), decimals=2,
                no_data=_NO_SPANS, links=(MAP_PAGE,),
            )
            for signal, title, usual in (("ttft", "time to first token", 1.0), ("tpot", "time per output token", 0.1))
        ),
        length_map(
            "Attainment by length", f"{text} Good over valid requests; of several services the best is hidden, so pick one. "
            "Series: goodwatch_heatmap_attainment_ratio.",
            cells("goodwatch_heatmap_attainment_ratio").replace("max by", "min by"), "percentunit",
            steps=(Step(None, RED), Step(0.9, ORANGE), Step(0.95, YELLOW), Step(0.99, GREEN)), width=12, height=9, decimals=1,
            high=1, no_data=_NO_SPANS, links=(MAP_PAGE,),
        ),
        length_map(
            "Requests by length", f"{text} Requests of the same cells: what the other maps stand on. "
            "Series: goodwatch_heatmap_requests.",
            cells("goodwatch_heatmap_requests").replace("max by", "sum by"), "short", width=12, height=9, steps=(Step(None, "transparent"),), decimals=0,
            no_data=_NO_SPANS, links=(MAP_PAGE,),
        ),
    )  # fmt: skip


def _stages() -> tuple[Panel, ...]:
    means = tuple(
        Query(f"goodwatch_{stage}_mean_seconds{{{WHOLE}}}", f"{{{{service}}}} {stage}")
        for stage in ("queue", "prefill", "decode")
    )
    return (
        Panel(
            "timeseries", "Mean time in queue, prefill and decode", "Means over goodwatch's window, engine's clock; they do not add up "
            "to end to end exactly: the rest is the frontend. Stacked. Series: goodwatch_queue_mean_seconds, "
            "goodwatch_prefill_mean_seconds, goodwatch_decode_mean_seconds.",
            means, "s", 12, 9, no_data="This engine tells no stages, or no traffic", links=(PAGE,), low=0,
            custom={"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30},
        ),
        latency("queue", "Queue time", {}, width=12, height=9),
    )  # fmt: skip


def _traffic() -> tuple[Panel, ...]:
    count = f"goodwatch_request_e2e_seconds_count{{{SERVICE}}}"
    return (
        Panel(
            "timeseries", "Requests", "Requests a second that ended, that failed or were refused, and that reached the server and left "
            "no finished entry (hang-ups, time-outs). Series: goodwatch_request_rate_per_second, goodwatch_failed_per_second, "
            "goodwatch_unaccounted_per_second.",
            (
                Query(f"goodwatch_request_rate_per_second{{{WHOLE}}}", "{{service}} ended"),
                Query(f"goodwatch_failed_per_second{{{WHOLE}}}", "{{service}} failed"),
                Query(f"goodwatch_unaccounted_per_second{{{WHOLE}}}", "{{service}} unaccounted"),
            ),
            "reqps", no_data=ABSENT, links=(PAGE,), low=0,
        ),
        Panel(
            "timeseries", "Requests by verdict", "Requests a second that settled, by what the SLO says of them: good, bad, not valid, "
            "undetermined. Counted one by one. Series: goodwatch_requests_total.",
            (Query(f"sum by (service, verdict) (rate(goodwatch_requests_total{{{SERVICE}}}{RATE}))", "{{service}} {{verdict}}"),), "reqps",
            no_data=_NO_SPANS, links=(BAD_REQUESTS_PAGE, PAGE), custom={"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30},
        ),
        Panel(
            "timeseries", "Tokens", "Prompt and generated tokens a second. Engines that count at the end of a request move in steps. "
            "Series: goodwatch_input_tokens_per_second, goodwatch_output_tokens_per_second.",
            (
                Query(f"goodwatch_input_tokens_per_second{{{WHOLE}}}", "{{service}} input"),
                Query(f"goodwatch_output_tokens_per_second{{{WHOLE}}}", "{{service}} output"),
            ),
            "short", no_data=ABSENT, links=(PAGE,), low=0,
        ),
        *(
            Panel(
                "timeseries", f"Mix of {kind} lengths", f"Requests a second that settled, by band of {kind} tokens. "
                "Series: goodwatch_request_e2e_seconds_count.",
                (Query(f"sum by ({kind}_band) (rate({count}{RATE}))", f"{{{{{kind}_band}}}}"),), "reqps", 12, no_data=_NO_SPANS, links=(ANY_REQUESTS_PAGE,),
                custom={"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30},
            )
            for kind in ("input", "output")
        ),
    )  # fmt: skip


def _cache() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries", "KV cache in use", "Share of the KV pool in use: mean over the window, and the fullest moment of the fullest "
            "engine. A full cache is normal under load; look at preemptions and waiting requests. "
            "Series: goodwatch_kv_cache_used_ratio, goodwatch_kv_cache_used_max_ratio.",
            (
                Query(f"goodwatch_kv_cache_used_ratio{{{WHOLE}}}", "{{service}} mean"),
                Query(f"goodwatch_kv_cache_used_max_ratio{{{WHOLE}}}", "{{service}} fullest"),
            ),
            "percentunit", 6, no_data="No KV gauge: this engine has none, or no data", low=0, high=1, links=(PAGE,),
        ),
        exact("prefix_hit_ratio", "Prefix cache hits", width=6, low=0, high=1, no_data="This engine counts no lookups, or no traffic"),
        exact("preemptions_per_s", "Preemptions", width=6, low=0, no_data="This engine counts no preemptions, or no data"),
        Panel(
            "timeseries", "Running and waiting", "Requests in the batch and in the queue, means over the window. "
            "Series: goodwatch_requests_running, goodwatch_requests_waiting.",
            (
                Query(f"goodwatch_requests_running{{{WHOLE}}}", "{{service}} running"),
                Query(f"goodwatch_requests_waiting{{{WHOLE}}}", "{{service}} waiting"),
            ),
            "short", 6, no_data=ABSENT, low=0, links=(PAGE,),
        ),
    )  # fmt: skip


def _replicas() -> tuple[Panel, ...]:
    def of(expr: str) -> str:
        return f"max by (target, service) ({expr})"

    columns = (
        Column("attainment ≥", of(at_least("goodwatch_attainment_ratio", EACH_TARGET)), "percentunit", decimals=2),
        Column("requests/s", of(f"goodwatch_request_rate_per_second{{{EACH_TARGET}}}"), decimals=2),
        Column("TTFT p99 ≤", of(at_most("goodwatch_ttft_p99_seconds", EACH_TARGET)), "s"),
        Column("TPOT mean", of(f"goodwatch_tpot_mean_seconds{{{EACH_TARGET}}}"), "s"),
        Column("ITL mean", of(f"goodwatch_itl_mean_seconds{{{EACH_TARGET}}}"), "s"),
        Column("running", of(f"goodwatch_requests_running{{{EACH_TARGET}}}"), decimals=1),
        Column("waiting", of(f"goodwatch_requests_waiting{{{EACH_TARGET}}}"), decimals=1),
        Column("KV cache, fullest", of(f"goodwatch_kv_cache_used_max_ratio{{{EACH_TARGET}}}"), "percentunit", decimals=0),
        Column("up", of(f'goodwatch_target_up{{{SERVICE},target=~"$target"}}'), steps=(Step(None, RED), Step(1.0, GREEN))),
    )  # fmt: skip
    return (
        joined(
            "Replicas", "One row a target, numbers of goodwatch's window, engine's clock. Columns with ≥ or ≤ are ends of intervals. "
            "Compare like with like: replicas behind one balancer should differ little.",
            columns, ("target", "service"), links=(ROW_TO_TARGET,), sort="TTFT p99 ≤", sort_down=True, width=24, height=7,
        ),
        exact("itl_mean_seconds", "Time between tokens, by replica", scope=EACH_TARGET, legend="{{target}}", width=12, links=(TARGET_PAGE,), low=0),
        exact("requests_waiting", "Waiting requests, by replica", scope=EACH_TARGET, legend="{{target}}", width=12, links=(TARGET_PAGE,), low=0),
    )  # fmt: skip


def _cost() -> tuple[Panel, ...]:
    unpriced = "No price for these targets, or no tokens"
    per_million = tuple(
        Query(f"goodwatch_usd_per_million_{kind}{{{WHOLE}}}", f"{{{{service}}}} {text}")
        for kind, text in (
            ("tokens", "all tokens"),
            ("output_tokens", "output tokens"),
            ("good_tokens", "tokens of good requests"),
        )
    )
    return (
        exact("usd_per_hour", "Cost an hour", no_data=unpriced, width=8),
        Panel(
            "timeseries", "Cost of a million tokens", "Price of the GPUs held over the window, idle time in it, over tokens of the window. "
            "Series: goodwatch_usd_per_million_tokens, goodwatch_usd_per_million_output_tokens, goodwatch_usd_per_million_good_tokens.",
            per_million, "currencyUSD", 8, why_empty="a good token has a cost only where requests are counted one by one and the targets have a price", no_data=unpriced, links=(PAGE,), low=0,
        ),
        exact("idle_ratio", "Idle share of the time", low=0, high=1, width=8),
    )  # fmt: skip
