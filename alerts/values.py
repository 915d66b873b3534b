"""An alert that somebody is told about: what evaluation hands to whoever delivers it. Values only."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass


def fingerprint(name: str, labels: Mapping[str, str]) -> str:
    """16 hex digits that name an alert by its name and labels: the same over re-sends, restarts and machines.

    Examples
    --------
    >>> fingerprint("LlmTargetDown", {"service": "chat", "severity": "warning"})
    '9b56031fa7fce3e3'
    """
    named = sorted({**labels, "alertname": name}.items())
    text = "\xff".join(f"{key}\xfe{value}" for key, value in named)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """One alert, firing or just resolved.

    ``labels`` are those of the rule that Prometheus would evaluate, ``severity`` among them, without ``alertname``
    (that is ``name``). ``annotations`` hold texts and links: summary, description, runbook_url, dashboard_url,
    triage_url. Times are Unix seconds; ``ends_at_s`` is None while it fires and the moment it let go afterwards.
    ``fingerprint`` stays the same from beginning to end and over restarts; ``generator_url`` is where it can be seen.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at_s: float
    ends_at_s: float | None
    fingerprint: str
    severity: str
    generator_url: str = ""

    @property
    def resolved(self) -> bool:
        """Whether it no longer fires."""
        return self.ends_at_s is not None
