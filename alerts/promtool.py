"""Unit tests for ``promtool test rules``, made from the same SLO as the rules: traffic in, firing times out. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from alerts.rules.burn import BUDGET_LEFT
from alerts.rules.files import HEAD, dumped
from alerts.rules.fit import fit
from alerts.rules.promql import quoted, span
from alerts.rules.sli import engines_of
from alerts.rules.sources import finished_matchers, latency_matchers, natives, served_terms
from alerts.rules.values import Options
from goodwatch.core.slo import Availability, JointGoodput, Latency, Slo, burn_pairs

PAGE, TICKET, DOWN = "LlmErrorBudgetBurnFast", "LlmErrorBudgetBurnSlow", "LlmServiceDown"
#: a route that every engine's pattern of inference requests takes
_ROUTE: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Steady requests for some minutes: ``per_min`` requests a minute, of them ``bad_per_min`` bad.

    ``up`` is the value of the series up; None leaves every series out, as a scrape that Prometheus missed. ``reset``
    starts the counters anew, ``pod`` names the instance (a new one has series of its own).
    """

    minutes: int
    per_min: int
    bad_per_min: int = 0
    up: int | None = 1
    reset: bool = False
    pod: str = "a"


@dataclass(frozen=True, slots=True)
class Check:
    """Whether an alert fires at a minute."""

    minute: int
    alert: str
    firing: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    """Traffic from minute 0 on, and what must hold. ``budget_left`` are (minute, share) of the lowest target."""

    name: str
    traffic: tuple[Traffic, ...]
    checks: tuple[Check, ...]
    budget_left: tuple[tuple[int, float], ...] = ()
    every_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Probe:
    """A native series and which requests it counts."""

    name: str
    labels: dict[str, str]
    counts: Literal["all", "good", "bad", "up"]


def unit_tests(slo: Slo, options: Options, rule_file: str, scenarios: Iterable[Scenario] | None = None) -> str | None:
    """A test file for the rules of one SLO; None when no engine's series can be composed for it."""
    probes = tuple(_probes(slo, options))
    labels = _plain_labels(slo, options)
    if not probes or labels is None:
        return None
    cases = tuple(scenarios) if scenarios is not None else tuple(standard(slo, options))
    tests = [_test(case, slo, probes, labels) for case in cases]
    return HEAD + dumped({"rule_files": [rule_file], "evaluation_interval": "1m", "tests": tests})


def standard(slo: Slo, options: Options) -> Iterator[Scenario]:
    """What every SLO's rules must do, whatever its objective and period."""
    pairs = [
        p
        for p in burn_pairs(slo.objective, slo.period.length_s, scrape_interval_s=options.scrape_interval_s)
        if p.severity == "page"
    ]
    after_min = min(pair.fires_after_s(1.0) or 0.0 for pair in pairs) / 60
    long_min = int(max(pair.long_s for pair in pairs[:2]) / 60)
    fires = long_min + max(1, int(after_min)) + 4  # the last scrape, the evaluation and the extrapolated edges
    quiet = Traffic(long_min, 600)
    hold = int(options.keep_firing_page_s / 60)
    yield Scenario(
        "good traffic is silent and keeps its budget",
        (Traffic(long_min + 60, 600),),
        _silent(long_min + 50),
        ((60, 1.0),),
    )
    yield Scenario("no traffic at all is silent and has a full budget", (Traffic(90, 0),), _silent(80), ((60, 1.0),))
    lost = Traffic(int(after_min) + 30, 600, 600)
    let_go = long_min + lost.minutes + int(pairs[0].short_s / 60) + hold + 6
    medium = pairs[-1].short_s / 60  # the longest of the short windows still burns that long
    yield Scenario(
        "a total outage pages in time and lets go", (quiet, lost, Traffic(int(medium) + hold + 30, 600)),
        (Check(long_min - 1, PAGE, False), Check(fires, PAGE, slo.pages), Check(let_go + int(medium), PAGE, False)),
    )  # fmt: skip
    lonely = (Traffic(90, 1), Traffic(1, 1, 1), Traffic(60, 1))
    yield Scenario("one failed request at one a minute pages nobody", lonely, tuple(_silence(range(90, 150, 10))))
    yield Scenario(
        "a service that is down pages",
        (Traffic(30, 600), Traffic(15, 0, up=0)),
        (Check(29, DOWN, False), Check(40, DOWN, True)),
    )


def _silent(until: int) -> tuple[Check, ...]:
    return tuple(
        Check(minute, alert, False) for minute in range(10, until, max(1, until // 4)) for alert in (PAGE, TICKET, DOWN)
    )


def _silence(minutes: Iterable[int]) -> Iterator[Check]:
    for minute in minutes:
        yield Check(minute, PAGE, False)
        yield Check(minute, TICKET, False)


# --- series -----------------------------------------------------------------------------------------------------------


def _plain_labels(slo: Slo, options: Options) -> dict[str, str] | None:
    labels = dict(slo.select) or {key: text.replace("{service}", slo.service) for key, text in options.select.items()}
    return None if any(value.startswith("~") for value in labels.values()) else labels


def _probes(slo: Slo, options: Options) -> Iterator[_Probe]:
    """Series of the first engine that carry the SLO; of a joint one its first latency target."""
    kind = slo.indicator
    if isinstance(kind, JointGoodput):
        kind = next(Latency(signal, limit_s) for signal, limit_s in kind.limits.items())
    if slo.scope.needs_facts or slo.scope.by:
        return
    if isinstance(kind, Latency):
        yield from _latency_probes(slo, kind, options)
    elif isinstance(kind, Availability):
        yield from _served_probes(slo, options)


def _latency_probes(slo: Slo, kind: Latency, options: Options) -> Iterator[_Probe]:
    found = [n for n in natives(options, engines_of(slo, options), kind.signal) if n.source.type == "histogram"]
    for native in found[:1]:
        bound = f"{fit(native, kind.limit_s, options).bound or 0:.12g}"
        labels = {"model_name": slo.scope.model or "m"}
        if native.source.part is not None and latency_matchers(native, kind.signal):
            labels[native.source.part] = "true"
        yield _Probe(native.histogram("_count"), labels, "all")
        yield _Probe(native.histogram("_bucket"), {**labels, "le": bound if "." in bound else f"{bound}.0"}, "good")
        yield _Probe(native.histogram("_bucket"), {**labels, "le": "+Inf"}, "all")


def _served_probes(slo: Slo, options: Options) -> Iterator[_Probe]:
    for name in engines_of(slo, options)[:1]:
        http = served_terms(options, name)
        for term in () if slo.scope.model else http[:1]:
            label, _, pattern = term.valid[0].partition("=~")
            if re.fullmatch(pattern.strip('"'), _ROUTE):
                status = term.valid[-1].partition("!~")[0]
                yield _Probe(term.name, {label: _ROUTE, status: "200"}, "good")
                yield _Probe(term.name, {label: _ROUTE, status: "500"}, "bad")
            return
        finished, failed = (
            natives(options, (name,), "requests_finished_total"),
            natives(options, (name,), "requests_failed_total"),
        )
        if finished and failed and finished[0].name == failed[0].name and finished_matchers(finished[0]):
            yield _Probe(finished[0].name, {"finished_reason": "stop", "model_name": slo.scope.model or "m"}, "good")
            yield _Probe(finished[0].name, {"finished_reason": "error", "model_name": slo.scope.model or "m"}, "bad")


def _test(case: Scenario, slo: Slo, probes: tuple[_Probe, ...], labels: dict[str, str]) -> dict[str, Any]:
    step_min = max(1, int(case.every_s // 60))
    series = [
        {"series": _name(probe, {**labels, "instance": pod}), "values": _values(case, probe.counts, pod, step_min)}
        for pod in dict.fromkeys(part.pod for part in case.traffic)
        for probe in (_Probe("up", {}, "up"), *probes)
    ]
    return {
        "name": f"{slo.name}: {case.name}",
        "interval": span(case.every_s),
        "input_series": series,
        "promql_expr_test": [*(_alert_check(check, slo) for check in case.checks), *_budget_checks(case, slo)],
    }


def _name(probe: _Probe, labels: dict[str, str]) -> str:
    inner = ", ".join(f"{key}={quoted(value)}" for key, value in {**labels, **probe.labels}.items())
    return f"{probe.name}{{{inner}}}"


def _values(case: Scenario, counts: str, pod: str, step_min: int) -> str:
    """Samples of one series, one every ``step_min`` minutes, in promtool's short form."""
    samples: list[int | None] = []
    value = 0
    for part in case.traffic:
        value = 0 if part.reset else value
        gained = {"all": part.per_min, "good": part.per_min - part.bad_per_min}.get(counts, part.bad_per_min)
        for _ in range(part.minutes // step_min):
            value += gained * step_min if part.pod == pod else 0
            here = part.pod == pod and part.up is not None
            samples.append(None if not here else part.up if counts == "up" else value if part.up else None)
    return shortened(samples)


def shortened(samples: list[int | None]) -> str:
    """Samples as promtool reads them: ``a+bxn`` for runs, ``_xn`` for what is missing."""
    tokens: list[str] = []
    at = 0
    while at < len(samples):
        first = samples[at]
        end = at + 1
        if first is None:
            while end < len(samples) and samples[end] is None:
                end += 1
            tokens.append(f"_x{end - at}")
        else:
            step = _step(first, samples[end]) if end < len(samples) else None
            while step is not None and end < len(samples) and _step(samples[end - 1], samples[end]) == step:
                end += 1
            tokens.append(f"{first}{step:+d}x{end - at - 1}" if step is not None else f"{first}")
        at = end
    return " ".join(tokens)


def _step(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _alert_check(check: Check, slo: Slo) -> dict[str, Any]:
    of = f'alertname={quoted(check.alert)},alertstate="firing",service={quoted(slo.service)}'
    of += f",slo={quoted(slo.name)}" if check.alert in (PAGE, TICKET) else ""
    return {
        "expr": f"count(ALERTS{{{of}}}) or vector(0)",
        "eval_time": f"{check.minute}m",
        "exp_samples": [{"labels": "{}", "value": int(check.firing)}],
    }


def _budget_checks(case: Scenario, slo: Slo) -> Iterator[dict[str, Any]]:
    for minute, share in case.budget_left:
        yield {
            "expr": f"round(min({BUDGET_LEFT}{{slo={quoted(slo.name)}}}), 0.001)",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": share}],
        }
