"""Targets that DNS names: A and AAAA records of a headless service, SRV records with ports.

Names are asked again at every refresh whatever their TTL says, and nothing is cached here. A name that has no records
(any more) or that nobody answers for keeps its targets for ``keep_s``: resolvers lose names for moments, and a scrape
tells better than a resolver whether an engine lives. After that its targets are dropped.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.rdatatype
import dns.resolver
from dns.rdtypes.IN.SRV import SRV

from collector.discovery._common import Failures, Found, clipped, place, spec_of
from collector.discovery.port import OnChange, OnFailure, ignore
from collector.targets import Defaults, TargetSpec
from goodwatch.core.clock import Clock, SystemClock

#: names looked up at the same time
AT_ONCE: Final = 16

#: answers of a headless service with many pods do not fit 512 bytes; beyond this (DNS flag day 2020) TCP is used
UDP_BYTES: Final = 1232


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and whom. ``port`` is that of the targets (A, AAAA); ``servers`` empty: those of the system."""

    names: tuple[str, ...]
    kind: Literal["A", "AAAA", "SRV"] = "A"
    port: int | None = None
    servers: tuple[tuple[str, int], ...] = ()
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class _Answer:
    """The last good answer for a name, and when it came (monotonic)."""

    specs: tuple[TargetSpec, ...]
    at_s: float


class _LookupError(Exception):
    """A name without a usable answer."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class DnsSD:
    """Implements ``collector.discovery.port.Discovery`` with DNS lookups.

    ``keep_s`` is how long targets outlive the last good answer for their name; ``failures_total`` counts lookups
    without one by reason: ``nxdomain``, ``no_records``, ``refused_or_failed`` (SERVFAIL and the like), ``timeout``,
    ``resolver``.
    """

    def __init__(
        self,
        name: str,
        question: Question,
        *,
        defaults: Defaults | None = None,
        refresh_s: float = 30.0,
        keep_s: float = 300.0,
        clock: Clock | None = None,
        on_failure: OnFailure = ignore,
    ) -> None:
        self.name = name
        self._question = question
        self._defaults = defaults or Defaults()
        self._refresh_s = refresh_s
        self._keep_s = keep_s
        self._clock = clock or SystemClock()
        self._failures = Failures(name, on_failure)
        self._answers: dict[str, _Answer] = {}
        self._looking = asyncio.Lock()

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """Targets by name; one that several names lead to is there once."""
        found = {spec.target.name: spec for name in reversed(self._question.names) for spec in self._specs(name)}
        return tuple(found[name] for name in sorted(found))

    @property
    def problems(self) -> dict[str, str]:
        """DNS name → why it has no good answer now."""
        return dict(self._failures.now)

    @property
    def failures_total(self) -> Counter[str]:
        """Lookups without a good answer, by reason."""
        return self._failures.total

    async def refresh(self) -> bool:
        """Look every name up; True when the targets differ from before."""
        async with self._looking:
            before = self.targets
            gate = asyncio.Semaphore(AT_ONCE)
            try:
                resolver = self._resolver()
            except (dns.exception.DNSException, OSError, ValueError) as error:
                for name in self._question.names:
                    self._keep(name, _LookupError("resolver", f"no DNS server is known: {clipped(str(error))}"))
            else:
                async with asyncio.TaskGroup() as group:
                    for name in self._question.names:
                        group.create_task(self._look(resolver, name, gate))
            return self.targets != before

    async def run(self, on_change: OnChange) -> None:
        """Refresh now and every ``refresh_s`` seconds until cancelled."""
        while True:
            if await self.refresh():
                on_change(self.targets)
            await asyncio.sleep(self._refresh_s)

    def _specs(self, name: str) -> tuple[TargetSpec, ...]:
        answer = self._answers.get(name)
        return () if answer is None else answer.specs

    def _resolver(self) -> dns.asyncresolver.Resolver:
        """Made anew at each refresh: /etc/resolv.conf changes while we run."""
        asked = self._question
        resolver = dns.asyncresolver.Resolver(configure=not asked.servers)
        if asked.servers:
            resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in asked.servers]
        resolver.use_edns(0, 0, UDP_BYTES)
        resolver.lifetime = asked.timeout_s
        # Several servers: each gets its share of the time, so that a dead first one does not use all of it.
        resolver.timeout = max(0.1, asked.timeout_s / max(2, len(resolver.nameservers)))
        return resolver

    async def _look(self, resolver: dns.asyncresolver.Resolver, name: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            try:
                places = await _records(resolver, name, self._question)
            except _LookupError as failure:
                self._keep(name, failure)
                return
        self._failures.fine(name)
        self._answers[name] = _Answer(tuple(self._spec(name, *one) for one in places), self._clock.monotonic_s())

    def _spec(self, name: str, host: str, port: int) -> TargetSpec:
        return spec_of(Found(place(host, port), host, port, labels={"dns_name": name}), self._defaults)

    def _keep(self, name: str, failure: _LookupError) -> None:
        """Keep what was known of a name while that is fresh enough."""
        known = self._answers.get(name)
        text = str(failure)
        if known is not None and known.specs:
            left_s = self._keep_s - (self._clock.monotonic_s() - known.at_s)
            if left_s > 0:
                text += f"; the {len(known.specs)} targets found before stay for another {left_s:.0f} s"
            else:
                text += f"; its targets were dropped after {self._keep_s:.0f} s without an answer"
                del self._answers[name]
        self._failures.failed(name, failure.reason, text)


async def _records(resolver: dns.asyncresolver.Resolver, name: str, question: Question) -> Sequence[tuple[str, int]]:
    """(host, port) of every record, sorted. Raises ``_LookupError``."""
    kind = question.kind
    try:
        answer = await resolver.resolve(name, kind, search=True)
    except dns.resolver.NXDOMAIN as error:
        raise _LookupError("nxdomain", f"{name} does not exist (NXDOMAIN)") from error
    except dns.resolver.NoAnswer as error:
        raise _LookupError("no_records", f"{name} exists and has no {kind} records") from error
    except dns.resolver.NoNameservers as error:
        raise _LookupError("refused_or_failed", f"no DNS server could say: {_said(error)}") from error
    except dns.exception.Timeout as error:
        text = f"no DNS server answered within {question.timeout_s:g} s: {_said(error)}"
        raise _LookupError("timeout", text) from error
    except (dns.exception.DNSException, OSError) as error:
        raise _LookupError("resolver", f"{name} cannot be looked up: {clipped(str(error))}") from error
    found = {
        (record.target.to_text(omit_final_dot=True), record.port)
        if isinstance(record, SRV)
        else (str(record.address), question.port or 0)
        for record in answer
        if not isinstance(record, SRV) or record.target.to_text() != "."  # RFC 2782: the service is decidedly absent
    }
    if not found:
        raise _LookupError("no_records", f"{name} says that the service is not available (its target is '.')")
    return sorted(found)


def _said(error: dns.exception.DNSException) -> str:
    """What each server said, without the wordy beginning of the library's own sentence."""
    tried = error.kwargs.get("errors") or ()
    each = [f"{one[0]} {one[3] if not hasattr(one[3], 'errno') else one[3].strerror or one[3]}" for one in tried]
    return clipped(", ".join(dict.fromkeys(each)) or str(error))
