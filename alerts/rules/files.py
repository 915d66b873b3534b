"""Rules as files: for Prometheus, as PrometheusRule objects, and as alert provisioning of Grafana."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from alerts.rules.promql import span
from alerts.rules.text import annotations, labels, pretty
from alerts.rules.values import Alert, Group, Options, Recording, RuleSet

HEAD: Final = "# Made by `goodwatch alerts build`. Do not edit: change the SLO and build again.\n"
_NOT_UID: Final = re.compile(r"[^a-zA-Z0-9_-]+")


class _Dumper(yaml.SafeDumper):
    """Long texts over lines, keys in the order in which they were written."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dumped(document: object) -> str:
    """A document as YAML."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def prometheus_files(rules: RuleSet, options: Options) -> dict[str, str]:
    """Rule files by name: ``goodwatch-SERVICE.rules.yaml``."""
    return {f"{name}.rules.yaml": HEAD + dumped(_groups(groups, options)) for name, groups in rules.files.items()}


def operator_files(rules: RuleSet, options: Options, namespace: str = "monitoring") -> dict[str, str]:
    """The same as PrometheusRule objects of the Prometheus operator."""
    return {
        f"{name}.prometheusrule.yaml": HEAD
        + dumped(
            {
                "apiVersion": "monitoring.coreos.com/v1",
                "kind": "PrometheusRule",
                "metadata": {
                    "name": object_name(name),
                    "namespace": namespace,
                    "labels": {"app.kubernetes.io/name": "goodwatch", "role": "alert-rules"},
                },
                "spec": _groups(groups, options),
            }
        )
        for name, groups in rules.files.items()
    }


def object_name(name: str) -> str:
    """A name that Kubernetes takes."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:253]


def _groups(groups: tuple[Group, ...], options: Options) -> dict[str, Any]:
    return {"groups": [_group(group, options) for group in groups]}


def _group(group: Group, options: Options) -> dict[str, Any]:
    return {
        "name": group.name,
        "interval": span(group.interval_s),
        "rules": [_alert(rule, options) if isinstance(rule, Alert) else _recording(rule) for rule in group.rules],
    }


def _recording(rule: Recording) -> dict[str, Any]:
    return {"record": rule.name, "expr": pretty(rule.expr), "labels": dict(rule.labels)}


def _alert(rule: Alert, options: Options) -> dict[str, Any]:
    made: dict[str, Any] = {"alert": rule.name, "expr": pretty(rule.expr)}
    if rule.for_s:
        made["for"] = span(rule.for_s)
    if rule.keep_firing_for_s:
        made["keep_firing_for"] = span(rule.keep_firing_for_s)
    return {**made, "labels": labels(rule, options), "annotations": annotations(rule, options)}


# --- Grafana ----------------------------------------------------------------------------------------------------------


def grafana_file(
    rules: RuleSet, options: Options, datasource_uid: str = "prometheus", folder: str = "goodwatch"
) -> str:
    """Alert provisioning (apiVersion 1). Recordings stay in Prometheus: Grafana's alerts read them from there."""
    groups = [_grafana_group(group, options, datasource_uid, folder) for group in rules.groups if group.alerts]
    return HEAD + dumped({"apiVersion": 1, "groups": groups})


def _grafana_group(group: Group, options: Options, datasource_uid: str, folder: str) -> dict[str, Any]:
    return {
        "orgId": 1,
        "name": group.name,
        "folder": folder,
        "interval": span(max(60.0, group.interval_s)),  # multiples of Grafana's 10 s; a minute spares the data source
        "rules": [_grafana_rule(alert, options, datasource_uid) for alert in group.alerts],
    }


def _grafana_rule(alert: Alert, options: Options, datasource_uid: str) -> dict[str, Any]:
    texts = annotations(alert, options, plain=True)
    return {
        "uid": uid(alert),
        "title": " ".join(
            part for part in (alert.name, alert.labels.get("slo") or alert.labels.get("service")) if part
        ),
        "condition": "B",
        # The query gives a series only where it breaches, so no data is fine; a query that fails is not.
        "data": [_query(alert, datasource_uid), _breach()],
        "noDataState": "OK",
        "execErrState": "Error",
        "for": span(alert.for_s) if alert.for_s else "0s",
        **({"keepFiringFor": span(alert.keep_firing_for_s)} if alert.keep_firing_for_s else {}),
        "annotations": {key: _grafana_text(text) for key, text in texts.items()},
        "labels": labels(alert, options),
        "isPaused": False,
    }


def _query(alert: Alert, datasource_uid: str) -> dict[str, Any]:
    return {
        "refId": "A",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": datasource_uid,
        "model": {"refId": "A", "expr": pretty(alert.expr), "instant": True, "range": False, "editorMode": "code"},
    }


def _breach() -> dict[str, Any]:
    # Any number breaches, also 0 and below: what is no breach has no series.
    model: Mapping[str, Any] = {
        "refId": "B",
        "type": "threshold",
        "expression": "A",
        "conditions": [{"type": "query", "evaluator": {"type": "within_range", "params": [-1e15, 1e15]}}],
        "datasource": {"type": "__expr__", "uid": "__expr__"},
    }
    return {"refId": "B", "relativeTimeRange": {"from": 0, "to": 0}, "datasourceUid": "__expr__", "model": dict(model)}


def _grafana_text(text: str) -> str:
    """Grafana's template for the query's value; ``$`` is doubled, or the file's loader takes it for a variable."""
    return text.replace("$value", "$values.A.Value").replace("$", "$$")


def uid(alert: Alert) -> str:
    """A stable uid of at most 40 characters: readable in front, a digest of the labels behind."""
    identity = "|".join([alert.name, *(f"{key}={value}" for key, value in sorted(alert.labels.items()))])
    return f"{_NOT_UID.sub('-', alert.kind)[:27]}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
