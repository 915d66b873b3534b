"""Targets that a Prometheus scrapes already: read from its API, then scraped by goodwatch itself.

VictoriaMetrics and vmagent answer the same question under the same path. What Prometheus drops is gone at the next
refresh; while it does not answer, its last targets stay, since its silence says nothing of them.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from yarl import URL

from collector._http import Session
from collector.discovery._common import ApiError, Failures, Found, json_from, place, target_at
from collector.discovery.port import OnChange, OnFailure, ignore
from collector.targets import Defaults, ScrapeOptions, TargetSpec

#: 10 000 targets with their labels before and after relabelling are about 30 MB
LIMIT_BYTES: Final = 100_000_000
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d+){3}|\[?::1\]?")
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Choice:
    """Which targets are taken. Patterns match whole texts; empty takes everything."""

    jobs: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()  # (label, pattern), all of them

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a target with these labels is taken."""
        job = labels.get("job", "")
        return (not self.jobs or any(re.fullmatch(pattern, job) for pattern in self.jobs)) and all(
            re.fullmatch(pattern, labels.get(name, "")) for name, pattern in self.labels
        )


class PrometheusSD:
    """Implements ``collector.discovery.port.Discovery`` with the targets API of a Prometheus.

    ``api`` is how the API is asked; the targets are scraped with ``defaults.options``, since Prometheus does not give
    its own credentials away. A target is named ``job/instance``.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        session: Session,
        api: ScrapeOptions | None = None,
        choice: Choice | None = None,
        defaults: Defaults | None = None,
        refresh_s: float = 30.0,
        on_failure: OnFailure = ignore,
    ) -> None:
        self.name = name
        self._base = URL(url)
        self._url = URL(f"{url.rstrip('/')}/api/v1/targets").with_query(state="active")
        self._session = session
        self._api = api or ScrapeOptions()
        self._choice = choice or Choice()
        self._defaults = defaults or Defaults()
        self._refresh_s = refresh_s
        self._failures = Failures(name, on_failure)
        self._targets: tuple[TargetSpec, ...] = ()
        self._asking = asyncio.Lock()

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """Targets of the last good answer, by name."""
        return self._targets

    @property
    def problems(self) -> dict[str, str]:
        """Why the API does not answer, and targets that were left out."""
        return self._failures.problems

    @property
    def failures_total(self) -> Counter[str]:
        """Looks that failed, by reason."""
        return self._failures.total

    async def refresh(self) -> bool:
        """Ask once; True when the targets differ from before."""
        where = str(self._base)
        async with self._asking:
            before = self._targets
            try:
                answer = await json_from(self._session, self._url, self._api, LIMIT_BYTES)
                active = _active(answer, self._url)
            except ApiError as error:
                stay = f"; the {len(before)} targets read before stay" if before else ""
                self._failures.failed(where, error.reason, f"{error}{_hint(error)}{stay}")
                return False
            self._failures.fine(where)
            self._targets, notes = self._chosen(active)
            self._failures.note(notes)
            return self._targets != before

    async def run(self, on_change: OnChange) -> None:
        """Refresh now and every ``refresh_s`` seconds until cancelled."""
        while True:
            if await self.refresh():
                on_change(self.targets)
            await asyncio.sleep(self._refresh_s)

    def _chosen(self, active: list[Any]) -> tuple[tuple[TargetSpec, ...], dict[str, str]]:
        found: dict[str, TargetSpec] = {}
        notes: dict[str, str] = {}
        for entry in active:
            labels = _texts(entry.get("labels")) if isinstance(entry, dict) else {}
            if not labels or not self._choice.takes(labels):
                continue
            try:
                spec = self._spec(entry, labels)
            except ValueError as error:
                notes[_name(labels)] = str(error)
                continue
            other = found.setdefault(spec.target.name, spec)
            if other.target.url != spec.target.url:
                notes[spec.target.name] = (
                    f"is the name of {other.target.url} and of another page; only the first is kept. "
                    "Give them another label job or instance in Prometheus"
                )
        shown = dict(sorted(notes.items())[:_SHOWN])
        return tuple(found[name] for name in sorted(found)), shown

    def _spec(self, entry: Mapping[str, Any], labels: dict[str, str]) -> TargetSpec:
        """One target of the answer; ``ValueError`` says why it cannot be scraped."""
        url = str(entry.get("scrapeUrl") or "")
        # "localhost" is the Prometheus machine's own; Prometheus tells how others reach it.
        if _is_loopback(url) and not _is_loopback(str(self._base)) and entry.get("globalUrl"):
            url = str(entry["globalUrl"])
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("left out: its scrape URL is not http://host:port/path")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        instance = labels.get("instance") or place(parts.hostname, port)
        service = labels.get("service") or labels.get("job", "")
        kept = {name: value for name, value in labels.items() if not name.startswith("__")}
        found = Found(_name({**labels, "instance": instance}), parts.hostname, port, service=service, labels=kept)
        return target_at(url, found, self._defaults)


def _name(labels: Mapping[str, str]) -> str:
    return "/".join(text for text in (labels.get("job", ""), labels.get("instance", "")) if text)


def _texts(labels: object) -> dict[str, str]:
    return {k: v for k, v in labels.items() if isinstance(v, str)} if isinstance(labels, dict) else {}


def _is_loopback(url: str) -> bool:
    return bool(_LOOPBACK.fullmatch(urlsplit(url).hostname or ""))


def _active(answer: Any, url: URL) -> list[Any]:
    """Active targets of an answer. Raises ``ApiError``."""
    data = answer.get("data") if isinstance(answer, dict) else None
    active = data.get("activeTargets") if isinstance(data, dict) else None
    if active is None and isinstance(data, dict) and "activeTargets" in data:
        active = []  # an empty list of Go
    if not isinstance(active, list):
        text = f"{url.with_query(None)} answered, but not with a list of targets; write the URL of a Prometheus"
        raise ApiError("not_targets", text, 200)
    return active


def _hint(error: ApiError) -> str:
    if error.status in (401, 403):
        return "; check api.authorization, api.basic_auth or api.headers"
    return "; write the URL of a Prometheus, without /api" if error.status == 404 else ""
