"""All rules of all SLOs, in files that Prometheus loads."""

import re
from collections.abc import Iterable
from typing import Final

from alerts.rules import burn
from alerts.rules.drift import drift_alerts, watch_group
from alerts.rules.machines import machine_group
from alerts.rules.service import service_group
from alerts.rules.sli import indicators
from alerts.rules.values import Group, Options, RuleSet
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import Slo

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def build(slos: Iterable[Slo], options: Options) -> RuleSet:
    """Recording and alerting rules: one file for each service, one for everything else.

    Raises ``ConfigError`` for an SLO that cannot work; says which and why.
    """
    by_service: dict[str, list[Slo]] = {}
    names: set[str] = set()
    for slo in slos:
        for key, name in (("name", slo.name), ("service", slo.service)):
            if not _NAME.fullmatch(name):  # it becomes part of file names and queries
                raise ConfigError(
                    f"slo '{slo.name}': {key} {name!r} is not a name; write letters, digits, '-', '_' and '.'"
                )
        if slo.name in names:
            raise ConfigError(f"slo '{slo.name}': the name is there twice; every SLO needs a name of its own")
        names.add(slo.name)
        by_service.setdefault(slo.service, []).append(slo)
    files: dict[str, tuple[Group, ...]] = {}
    notes: list[str] = []
    for service, found in by_service.items():
        groups: list[Group] = []
        for slo in found:
            made, said = _slo(slo, options)
            groups += made
            notes += said
        beside, absent = service_group(tuple(found), options)
        drift = drift_alerts(tuple(found), options)
        files[f"goodwatch-{service}"] = (*groups, Group(beside.name, beside.interval_s, (*beside.rules, *drift)))
        notes += [f"{service}: its engines have no series for {name}; left out" for name in absent]
    machines = machine_group(options)
    files["goodwatch-common"] = (*((machines,) if machines else ()), watch_group(options))
    return RuleSet(files, tuple(notes))


def _slo(slo: Slo, options: Options) -> tuple[tuple[Group, ...], list[str]]:
    counts = indicators(slo, options)
    try:
        groups = burn.burn_groups(slo, counts, options)
        return groups, [*counts.notes, *burn.notes(slo, options)]
    except ValueError as error:
        raise ConfigError(f"slo '{slo.name}': {error}") from error
