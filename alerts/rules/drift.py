"""Slow changes of cost and quality, and the alerts that watch the watchers."""

from alerts.rules import own
from alerts.rules.promql import quoted, selector
from alerts.rules.values import Alert, Group, Options
from goodwatch.core.slo import Quality, Slo


def drift_alerts(slos: tuple[Slo, ...], options: Options) -> tuple[Alert, ...]:
    """Cost of a service against its week, and quality of its scores against theirs."""
    service = slos[0].service
    labels = (f"service={quoted(service)}", 'model=""', 'target=""')

    def cost(window: str) -> str:
        # Money over tokens, each averaged over the window: a mean of ratios would weigh idle hours like busy ones.
        usd = f"avg_over_time({selector(own.USD_PER_HOUR, labels)}[{window}:5m])"
        tokens = f"avg_over_time({selector(own.TOKENS_PER_S, labels)}[{window}:5m])"
        return f"{usd} / ({tokens} > 0)"

    made = [
        Alert(
            "LlmCostDrift", "cost-drift", f"({cost('1d')}) / ({cost('7d')}) > 1.3", options.ticket,
            f"A token of {service} costs {{{{ $value | humanize }}}} times what it cost over the week.",
            for_s=3_600.0, labels={"service": service},
            description="Fewer tokens for the same GPUs, or more GPUs for the same tokens; idle time is paid for.",
        )
    ]  # fmt: skip
    made += [_quality(slo, options) for slo in slos if isinstance(slo.indicator, Quality)]
    return tuple(made)


def _quality(slo: Slo, options: Options) -> Alert:
    labels = (f"slo={quoted(slo.name)}",)

    def share(window: str) -> str:
        good = f"sum(increase({selector(own.GOOD_EVENTS, labels)}[{window}]))"
        return f"{good} / (sum(increase({selector(own.VALID_EVENTS, labels)}[{window}])) > 100)"

    return Alert(
        "LlmQualityDrop", "quality-drop", f"({share('6h')}) < ({share('7d')}) - 0.05", options.ticket,
        f"Only {{{{ $value | humanizePercentage }}}} of the judged answers of {slo.service} pass, 5 points under their week.",
        for_s=3_600.0, labels={"service": slo.service, "slo": slo.name},
        description="The model, its quantisation, a template or the judge changed.",
    )  # fmt: skip


def watch_group(options: Options) -> Group:
    """A switch that fires always, and the loss of goodwatch itself: pages from native series go on without it."""
    up = selector("up", (f"job={quoted(options.own_job)}",))
    return Group(
        "goodwatch-watch", options.interval_s,
        (
            Alert(
                "LlmWatchdog", "watchdog", "vector(1)", "none",
                "This alert always fires: when it stops, alerting itself is broken.",
                description="Send it to something that calls when it stays away.",
            ),
            Alert(
                "LlmGoodwatchDown", "goodwatch-down", f"max({up}) == 0 or max(absent({up}))", options.ticket,
                "goodwatch cannot be scraped: counted goodput, cost and quality are blind; native pages go on.",
                for_s=600.0,
            ),
        ),
    )  # fmt: skip
