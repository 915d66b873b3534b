"""Queries of rule files (Prometheus, PrometheusRule, Grafana's provisioning) and of Grafana boards, with their lines."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import yaml

from alerts.lint.tree import parsed
from alerts.lint.values import Finding, Query

_JSON_EXPR: Final = re.compile(r'"expr"\s*:\s*("(?:[^"\\]|\\.)*")')
_TEXTS: Final = ("summary", "description", "message", "runbook", "title")


def queries(path: str, text: str) -> tuple[list[Query], list[Finding]]:
    """All queries of a file, and what cannot be read in it."""
    try:
        found = _board(path, text) if path.endswith(".json") else _rules(path, text)
    except json.JSONDecodeError as error:
        return [], [Finding(path, error.lineno, "unreadable", f"not JSON: {error.msg}", "mend the syntax")]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return [], [Finding(path, line, "unreadable", f"not YAML: {error.problem}", "mend the syntax")]
    except RecursionError:
        return [], [Finding(path, 1, "unreadable", "nested too deeply", "flatten it")]
    except yaml.YAMLError as error:
        return [], [Finding(path, 1, "unreadable", f"not YAML: {str(error).splitlines()[0]}", "save it as UTF-8 text")]
    good: list[Query] = []
    bad: list[Finding] = []
    for query in found:
        try:
            good.append(replace(query, tree=parsed(query.expr)))
        except ValueError as error:
            said = str(error).splitlines()[0]
            bad.append(
                Finding(path, query.line, "unparsable", f"{query.name}: not PromQL: {said}", "correct the expression")
            )
    return good, bad


# --- rules ------------------------------------------------------------------------------------------------------------


def _rules(path: str, text: str) -> list[Query]:
    found: list[Query] = []
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        for mapping in _mappings(document):
            fields = {key.value: value for key, value in mapping.value if isinstance(key, yaml.ScalarNode)}
            if "expr" in fields and ("alert" in fields or "record" in fields):
                found.append(_rule(path, fields, text))
            elif "data" in fields and "title" in fields:
                found += _provisioned(path, fields, text)
    return found


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _mappings(item)


def _rule(path: str, fields: dict[str, yaml.Node], text: str) -> Query:
    alert = "alert" in fields
    line, multiline = _place(fields["expr"], text)
    annotations = _scalars(fields.get("annotations"))
    name = _scalar(fields["alert" if alert else "record"])
    texts = tuple(value for key, value in annotations.items() if key in _TEXTS)
    labels = _scalars(fields.get("labels"))
    return Query(
        path, line, _scalar(fields["expr"]), "alert" if alert else "record", name, labels, texts, multiline=multiline
    )


def _provisioned(path: str, fields: dict[str, yaml.Node], text: str) -> Iterator[Query]:
    annotations = _scalars(fields.get("annotations"))
    texts = tuple(value for key, value in annotations.items() if key in _TEXTS)
    for mapping in _mappings(fields["data"]):
        model = {key.value: value for key, value in mapping.value if isinstance(key, yaml.ScalarNode)}
        if "expr" in model and "alert" not in model:
            line, multiline = _place(model["expr"], text)
            labels = _scalars(fields.get("labels"))
            yield Query(
                path,
                line,
                _scalar(model["expr"]),
                "alert",
                _scalar(fields["title"]),
                labels,
                texts,
                multiline=multiline,
            )


def _place(node: yaml.Node, text: str) -> tuple[int, bool]:
    """Line of the expression's first line; a block begins on the line after its key."""
    block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    first = node.start_mark.line + (2 if block else 1)
    if block:
        lines = text.splitlines()
        while first <= len(lines) and not lines[first - 1].strip():
            first += 1
    return first, block and isinstance(node, yaml.ScalarNode) and node.style == "|"


def _scalar(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else ""


def _scalars(node: yaml.Node | None) -> dict[str, str]:
    return {_scalar(k): _scalar(v) for k, v in node.value} if isinstance(node, yaml.MappingNode) else {}


# --- boards -----------------------------------------------------------------------------------------------------------


def _board(path: str, text: str) -> list[Query]:
    """Panels of a board in the classic form; every ``expr`` of the text is met in the order of the document."""
    lines: dict[str, list[int]] = {}
    for found in _JSON_EXPR.finditer(text):
        lines.setdefault(json.loads(found[1]), []).append(text.count("\n", 0, found.start()) + 1)
    return [
        replace(query, line=lines[query.expr].pop(0) if lines.get(query.expr) else 1)
        for panel in _panels(json.loads(text))
        for query in _panel(path, panel)
    ]


def _panels(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if isinstance(node.get("targets"), list):
            yield node
        for value in node.values():
            yield from _panels(value)
    elif isinstance(node, list):
        for item in node:
            yield from _panels(item)


def _panel(path: str, panel: dict[str, Any]) -> Iterator[Query]:
    defaults = (panel.get("fieldConfig") or {}).get("defaults") or {}
    steps = (defaults.get("thresholds") or {}).get("steps") or []
    values = tuple(float(s["value"]) for s in steps if isinstance(s, dict) and isinstance(s.get("value"), int | float))
    texts = tuple(str(panel[key]) for key in ("description",) if panel.get(key))
    for target in panel["targets"]:
        if isinstance(target, dict) and isinstance(target.get("expr"), str) and target["expr"].strip():
            yield Query(
                path, 1, target["expr"], "panel", str(panel.get("title") or "a panel without title"), {},
                (*texts, *_legend(target)), str(defaults.get("unit") or ""), values,
            )  # fmt: skip


def _legend(target: dict[str, Any]) -> Iterable[str]:
    return [str(target["legendFormat"])] if target.get("legendFormat") else []
