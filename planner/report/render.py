"""A week's facts to files: Markdown, HTML and JSON, in one language, in full or as a copy that may be given away. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.experiments.redact import redacted_json
from planner.report.compose import composed
from planner.report.facts import Advised, ServiceWeek, TenantWeek, WeekFacts
from planner.report.html import html
from planner.report.markdown import markdown
from planner.report.words import Language, Words

#: keys of the JSON, which say nothing of whose report it is
_KEYS: Final = frozenset(
    {"week", "services", "slos", "advised", "verified", "anomalies", "notes", "year", "number", "zone", "service", "now",
     "before", "tenants", "tenant", "usd", "per_million_good_usd", "idle_usd", "wasted_usd", "value", "low", "high", "basis",
     "missing", "days", "attainment_ratio", "objective", "slo", "budget_left_ratio", "firing", "id", "strategy", "state",
     "saving_usd", "confidence", "mode", "changes", "restart", "gate", "why", "factor", "outcome", "change_ratio", "predicted_usd",
     "realised_usd", "inside", "vetoed", "kind", "signal", "expected", "key", "values", "made_s", "began_s", "ended_s"}
)  # fmt: skip


def rendered(facts: WeekFacts, language: Language, *, hidden: bool = False) -> dict[str, str]:
    """File name → text. ``hidden`` gives the copy that may be given away: no name, date, exact price or free text."""
    shown = redacted(facts) if hidden else facts
    document = composed(shown, Words(language, facts.week.zone, hidden))
    body = to_body(facts)
    if hidden:
        body = {name: part for name, part in body.items() if name not in ("week", "made_s", "notes", "anomalies")}
        told = redacted_json(body, _KEYS)
    else:
        told = body
    name = "weekly-redacted" if hidden else f"weekly-{facts.week.id}"
    return {
        f"{name}.md": markdown(document),
        f"{name}.html": html(document),
        f"{name}.json": json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }


def to_body(facts: WeekFacts) -> Mapping[str, object]:
    """The facts as JSON values; null is "not known"."""
    return {"week_id": facts.week.id, **dataclasses.asdict(facts)}


def redacted(facts: WeekFacts) -> WeekFacts:
    """The facts with roles for names, and without free texts, settings, instants and notes that name something."""
    roles = _Roles()
    services = tuple(_service(one, roles) for one in facts.services)
    return replace(
        facts,
        services=services,
        slos=tuple(replace(s, service=roles.of("service", s.service), slo=roles.of("slo", s.slo)) for s in facts.slos),
        advised=tuple(_advised(one, roles) for one in facts.advised),
        verified=tuple(
            replace(
                one, id=roles.of("experiment", one.id), service=roles.of("service", one.service),
                factor=roles.of("change", one.factor),
            )
            for one in facts.verified
        ),
        anomalies=tuple(
            replace(one, service=roles.of("service", one.service), signal="", value=None, expected=None)
            for one in facts.anomalies
        ),
        notes=(),
    )  # fmt: skip


class _Roles:
    """The same role for the same name in all of a report."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def of(self, kind: str, name: str) -> str:
        if not name:
            return ""
        if (kind, name) not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[kind, name] = f"{kind} {self._counts[kind]}"
        return self._known[kind, name]


def _service(one: ServiceWeek, roles: _Roles) -> ServiceWeek:
    tenants = tuple(_tenant(each, roles) for each in one.tenants)
    return replace(one, service=roles.of("service", one.service), tenants=tenants)


def _tenant(one: TenantWeek, roles: _Roles) -> TenantWeek:
    return replace(one, tenant=None if one.tenant is None else roles.of("tenant", one.tenant))


def _advised(one: Advised, roles: _Roles) -> Advised:
    return replace(one, id=roles.of("advice", one.id), service=roles.of("service", one.service), changes={}, why="")
