"""An incident: what changed when the alert began? Every panel shares the time; annotations mark what happened."""

from dataclasses import replace
from typing import Final

from dashboards.boards._own import (
    ABSENT,
    ANY_REQUESTS_PAGE,
    BAD_REQUESTS_PAGE,
    FIRES_MAPPING,
    NOTES,
    PAGE,
    REQUESTS_PAGE,
    SERVICE_PICKER,
    TARGET_PAGE,
    UP_MAPPING,
    exact,
    number,
    page_variable,
)
from dashboards.promql import EACH_TARGET, FLEET, RATE, SERVICE
from dashboards.values import GREEN, RED, Board, Note, Options, Panel, Query, Row, Step, Variable

_TARGETS: Final = Variable("target", "Target", 'label_values(goodwatch_target_up{service=~"$service"}, target)')
_ALERT: Final = Variable("alert", "Alert", 'label_values(ALERTS{service=~"$service"}, alertname)', everything=".*")
_FIRING: Final = f'ALERTS{{alertstate="firing",alertname=~"$alert",{SERVICE}}}'
_NO_SPANS: Final = "No request spans yet: they come by OTLP (docs/configuration.md)"


def incident(options: Options) -> Board:
    """The board that an alert leads to."""
    rows = (
        Row("What changed when the alert began?", (*_alert(), *_felt())),
        Row("More work, or slower work?", _work()),
        Row("Which replica?", _replicas()),
        Row("Single requests", (_traces(),)),
    )
    began = Note("Alert fires", "red", f"{_FIRING} > 0", "{{alertname}} ({{severity}})")
    return Board(
        "goodwatch-incident", "Incident", "What changed when the alert began? Alerts, deployments and incidents are marked over every panel.",
        rows, (SERVICE_PICKER, _ALERT, _TARGETS, page_variable(options.url)), (began, *NOTES), ("incident",), "now-3h",
    )  # fmt: skip


def _alert() -> tuple[Panel, ...]:
    return (
        Panel(
            "state-timeline", "Alerts", "When alerts of the picked services fired; their text has the runbook. Series: ALERTS.",
            (Query(f"max by (alertname, service, severity) ({_FIRING})", "{{alertname}} {{service}} ({{severity}})"),), "short", 12, 7,
            (Step(None, GREEN), Step(1.0, RED)), mappings=(FIRES_MAPPING,), no_data="None fired, or no rules",
            why_empty="no alert fires on a healthy system", links=(PAGE,),
        ),
        Panel(
            "state-timeline", "Targets that answer", "Whether the last scrape of each target succeeded. Series: goodwatch_target_up.",
            (Query(f'goodwatch_target_up{{{SERVICE},target=~"$target"}}', "{{target}}"),), "short", 12, 7,
            (Step(None, RED), Step(1.0, GREEN)), mappings=(UP_MAPPING,), links=(TARGET_PAGE,),
        ),
    )  # fmt: skip


def _felt() -> tuple[Panel, ...]:
    return (
        number("attainment_ratio", "Attainment", scope=FLEET, high=1, links=(BAD_REQUESTS_PAGE, PAGE)),
        number("ttft_p99_seconds", "Time to first token, P99", scope=FLEET, low=0, links=(REQUESTS_PAGE, PAGE)),
        number("tpot_p99_seconds", "Time per output token, P99", scope=FLEET, low=0, links=(REQUESTS_PAGE, PAGE)),
    )


def _work() -> tuple[Panel, ...]:
    tokens = tuple(
        Query(f"goodwatch_{kind}_tokens_per_second{{{FLEET}}}", f"{{{{service}}}} {kind}")
        for kind in ("input", "output")
    )
    lengths = tuple(
        Query(
            f"goodwatch_{kind}_tokens_per_second{{{FLEET}}} / (goodwatch_request_rate_per_second{{{FLEET}}} > 0)", f"{{{{service}}}} {kind}",
        )
        for kind in ("input", "output")
    )  # fmt: skip
    return (
        Panel(
            "timeseries", "Requests", "Requests a second that ended, failed, and reached the server without a finished entry. "
            "Series: goodwatch_request_rate_per_second, goodwatch_failed_per_second, goodwatch_unaccounted_per_second.",
            tuple(
                Query(f"goodwatch_{name}_per_second{{{FLEET}}}", f"{{{{service}}}} {text}")
                for name, text in (("request_rate", "ended"), ("failed", "failed"), ("unaccounted", "unaccounted"))
            ),
            "reqps", no_data=ABSENT, links=(PAGE,), low=0,
        ),
        Panel(
            "timeseries", "Tokens", "Prompt and generated tokens a second. Series: goodwatch_input_tokens_per_second, "
            "goodwatch_output_tokens_per_second.",
            tokens, "short", no_data=ABSENT, links=(PAGE,), low=0,
        ),
        Panel(
            "timeseries", "Mean length of requests", "Tokens over requests that ended, both of goodwatch's window: longer prompts or answers are "
            "more work. Series: goodwatch_input_tokens_per_second, goodwatch_output_tokens_per_second, goodwatch_request_rate_per_second.",
            lengths, "short", no_data=ABSENT, links=(PAGE,), low=0,
        ),
        exact("queue_mean_seconds", "Queue time, mean", scope=FLEET, low=0, no_data="This engine tells no queue time, or no traffic", width=6),
        exact("requests_waiting", "Waiting requests", scope=FLEET, low=0, width=6),
        exact("kv_cache_used_max_ratio", "KV cache, fullest engine", scope=FLEET, low=0, high=1, width=6,
              no_data="No KV gauge: this engine has none, or no data"),
        exact("preemptions_per_s", "Preemptions", scope=FLEET, low=0, width=6, no_data="This engine counts no preemptions, or no data"),
    )  # fmt: skip


def _replicas() -> tuple[Panel, ...]:
    panels = (
        exact("itl_mean_seconds", "Time between tokens, by replica", scope=EACH_TARGET, legend="{{target}}", low=0),
        exact("requests_waiting", "Waiting requests, by replica", scope=EACH_TARGET, legend="{{target}}", low=0),
        exact(
            "request_rate_per_s",
            "Requests that ended, by replica",
            scope=EACH_TARGET,
            legend="{{target}}",
            low=0,
            unit="reqps",
        ),
    )
    return tuple(replace(panel, links=(TARGET_PAGE,)) for panel in panels)


def _traces() -> Panel:
    bucket = f"goodwatch_request_ttft_seconds_bucket{{{SERVICE}}}"
    return Panel(
        "heatmap", "Time to first token, with traces", "Requests that settled by their time to first token, engine's clock; a dot is one request, "
        "and leads to its trace. Series: goodwatch_request_ttft_seconds.",
        (Query(f"sum by (le) (increase({bucket}{RATE}))", "{{le}}", "buckets", exemplars=True),), "s", 24, 9, no_data=_NO_SPANS,
        links=(ANY_REQUESTS_PAGE,),
    )  # fmt: skip
