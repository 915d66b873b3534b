"""What rules are made of, and what the builder is told: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from goodwatch.core.engine import Engine


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule; ``name`` follows level:metric:operation."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule with all that a person needs at 3 am.

    ``summary`` is one sentence; ``numbers`` is text with template queries that only Prometheus can answer (Grafana's
    provisioning leaves it out). ``kind`` names the runbook.
    """

    name: str
    kind: str
    expr: str
    severity: str
    summary: str
    description: str = ""
    numbers: str = ""
    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    interval_s: float
    rules: tuple[Recording | Alert, ...]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Its alerting rules."""
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Groups by file name (without suffix), and what a person should know about them.

    ``notes`` are sentences: factors that were fitted, targets that no native series counts, alerts left out.
    """

    files: Mapping[str, tuple[Group, ...]]
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups of all files."""
        return tuple(group for groups in self.files.values() for group in groups)

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Alerting rules of all groups."""
        return tuple(alert for group in self.groups for alert in group.alerts)


@dataclass(frozen=True, slots=True)
class Options:
    """How the rules fit into the operator's Prometheus.

    ``engines`` are the tables by name; ``versions`` pins an engine's version (else every name that it ever had is
    met). ``select`` finds the series of a service: label → value with ``{service}`` in it, a regular expression after
    "~". ``scrape_interval_s`` is Prometheus' own. ``bounds`` are bucket bounds in seconds by histogram family, from
    live series where they are known.
    """

    engines: Mapping[str, Engine] = field(default_factory=dict)
    accelerators: Mapping[str, Engine] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    select: Mapping[str, str] = field(default_factory=lambda: {"job": "{service}"})
    scrape_interval_s: float = 15.0
    interval_s: float = 30.0
    page: str = "critical"
    ticket: str = "warning"
    external_url: str = "http://127.0.0.1:9470"
    dashboard_url: str = "{external_url}/services/{service}"
    runbook_url: str = "{external_url}/docs/runbooks/{kind}"
    triage_url: str = "{external_url}/triage?service={service}&alert={alert}"
    bounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    keep_firing_page_s: float = 900.0
    keep_firing_ticket_s: float = 3_600.0
    own_job: str = "goodwatch"
    labels: Mapping[str, str] = field(default_factory=dict)
