"""Expressions as they are written into files, and the annotations of an alert."""

import promql_parser

from alerts.rules.values import Alert, Options


def pretty(expr: str) -> str:
    """The expression over several lines; raises ``ValueError`` where it is not PromQL."""
    return str(promql_parser.parse(expr).prettify())


def annotations(alert: Alert, options: Options, *, plain: bool = False) -> dict[str, str]:
    """Texts and links; ``plain`` leaves out what only Prometheus' templates can ask.

    The runbook of an alert is found by its kind, so two alerts of one kind share it.
    """
    words = {"external_url": options.external_url.rstrip("/"), "alert": alert.name, "kind": alert.kind,
             "service": alert.labels.get("service", "")}  # fmt: skip
    texts = {
        "summary": alert.summary if plain or not alert.numbers else f"{alert.summary} {alert.numbers}",
        "description": alert.description,
        "runbook_url": options.runbook_url.format_map(words),
        "dashboard_url": options.dashboard_url.format_map(words) if words["service"] else words["external_url"],
        "triage_url": options.triage_url.format_map(words) if words["service"] else "",
    }
    return {key: text for key, text in texts.items() if text}


def labels(alert: Alert, options: Options) -> dict[str, str]:
    """Labels of an alert, severity first."""
    return {"severity": alert.severity, **alert.labels, **options.labels}
