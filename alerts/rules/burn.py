"""Rules of one SLO: counts per window, error budget, and one page and one ticket that watch several windows each."""

from collections.abc import Iterable, Iterator
from typing import Final

from alerts.rules.promql import number, quoted, span
from alerts.rules.sli import Indicators, Sli, group_labels
from alerts.rules.values import Alert, Group, Options, Recording
from goodwatch.core.slo import DAY_S, BurnPair, Cost, JointGoodput, Quality, Severity, Slo, burn_pairs

#: counts of this length are the tiles of everything from a day on: they outlive pods, names and restarts
TILE_S: Final = 300.0
#: budgets move slowly; still under Prometheus' look-back of 5 minutes, or their series would have holes
BUDGET_EVERY_S: Final = 120.0

BAD, TOTAL, RATIO = "goodwatch:slo_bad:increase", "goodwatch:slo_total:increase", "goodwatch:slo_error:ratio"
BUDGET_LEFT: Final = "goodwatch:slo_budget_left:ratio"
INFO, OBJECTIVE, BUDGET = "goodwatch:slo_info", "goodwatch:slo_objective:ratio", "goodwatch:slo_budget:ratio"


def windows(pairs: Iterable[BurnPair]) -> tuple[float, ...]:
    """Lengths of all windows in seconds, short ones first, the tile among them."""
    return tuple(sorted({TILE_S, *(length for pair in pairs for length in (pair.short_s, pair.long_s))}))


def burn_groups(slo: Slo, counts: Indicators, options: Options) -> tuple[Group, ...]:
    """The recordings and alerts of an SLO; raises ``ValueError`` as ``burn_pairs`` does."""
    pairs = burn_pairs(slo.objective, slo.period.length_s, scrape_interval_s=options.scrape_interval_s)
    recordings = [rule for sli in counts.slis for length in windows(pairs) for rule in _window(slo, sli, length)]
    alerts = [
        *([_burn_alert(slo, pairs, "page", options)] if slo.pages else []),
        *([_burn_alert(slo, pairs, "ticket", options)] if slo.tickets else []),
    ]
    return (
        Group(f"goodwatch-slo-{slo.name}", options.interval_s, (*recordings, *alerts)),
        Group(f"goodwatch-slo-{slo.name}-budget", BUDGET_EVERY_S, tuple(_budget(slo, counts.slis, pairs, options))),
    )


def labels_of(slo: Slo) -> dict[str, str]:
    """Labels that every rule of the SLO sets."""
    return {"service": slo.service, "slo": slo.name}


def _window(slo: Slo, sli: Sli, length_s: float) -> Iterator[Recording]:
    labels = {**labels_of(slo), "target": sli.target}
    window, of = span(length_s), _series(slo, sli)
    if length_s >= DAY_S:
        for name in (TOTAL, BAD):
            tiles = f"{name}{span(TILE_S)}{of}[{window}:{span(TILE_S)}]"
            yield Recording(f"{name}{window}", f"sum_over_time({tiles})", labels)
    else:
        total = f"{TOTAL}{window}{of}"
        yield Recording(f"{TOTAL}{window}", sli.total.replace("$window", window), labels)
        yield Recording(f"{BAD}{window}", sli.bad.replace("$total", total).replace("$window", window), labels)
    # Without traffic there is no ratio: a NaN would poison every sum over time.
    yield Recording(f"{RATIO}{window}", f"{BAD}{window}{of} / ({TOTAL}{window}{of} > 0)", labels)


def _series(slo: Slo, sli: Sli) -> str:
    return f"{{slo={quoted(slo.name)},target={quoted(sli.target)}}}"


def _burn_alert(slo: Slo, pairs: tuple[BurnPair, ...], severity: Severity, options: Options) -> Alert:
    """One alert for all windows of a severity and all targets: one incident, one page."""
    of = f"{{slo={quoted(slo.name)}}}"
    least = number(max(1, slo.min_failures) - 0.5)  # increases are extrapolated: 5 failures can read 4.99
    fires = [
        f"({RATIO}{span(pair.long_s)}{of} > {number(pair.threshold_ratio)}"
        f" and {RATIO}{span(pair.short_s)}{of} > {number(pair.threshold_ratio)}"
        f" and {BAD}{span(pair.long_s)}{of} > {least})"
        for pair in pairs
        if pair.severity == severity
    ]
    page = severity == "page"
    speed = "fast enough to wake someone" if page else "slowly but steadily"
    objective = f"{slo.objective:.12g}"
    return Alert(
        name="LlmErrorBudgetBurnFast" if page else "LlmErrorBudgetBurnSlow",
        kind="error-budget-burn-fast" if page else "error-budget-burn-slow",
        expr=f"max without (target) ({' or '.join(fires)})",
        severity=options.page if page else options.ticket,
        summary=f"{_events(slo)} of {slo.service} miss the SLO {slo.name} "
        f"(objective {_percent(slo.objective)} over {_period(slo)}).",
        numbers=_numbers(slo),
        description=f"The error budget of {slo.name} burns {speed}: {_pairs_text(pairs, severity)}. "
        f"{slo.description or 'What is counted is in the runbook.'}",
        keep_firing_for_s=options.keep_firing_page_s if page else options.keep_firing_ticket_s,
        labels={**labels_of(slo), "objective": objective, "period": span(slo.period.length_s), **slo.labels},
    )


def _events(slo: Slo) -> str:
    """What the alert's value is a share of; of a joint SLO each target alone tells only the least that is bad."""
    share = "{{ $value | humanizePercentage }} of the"
    if isinstance(slo.indicator, JointGoodput):
        return f"At least {share} requests"
    return f"{share} {'minutes' if isinstance(slo.indicator, Cost) else 'answers' if isinstance(slo.indicator, Quality) else 'requests'}"


def _numbers(slo: Slo) -> str:
    """Numbers that the alert's own value does not hold, asked when it is written."""
    budget = number(slo.budget_ratio)
    left = f"min({BUDGET_LEFT}{{slo='{slo.name}'}})"
    return (
        f'{{{{ with printf "vector(%f / {budget})" $value | query }}}}Burn {{{{ . | first | value | printf "%.1f" }}}}x.'
        f'{{{{ end }}}}{{{{ with query "{left}" }}}} Budget left: {{{{ . | first | value | humanizePercentage }}}}.{{{{ end }}}}'
    )


def _pairs_text(pairs: tuple[BurnPair, ...], severity: Severity) -> str:
    """Windows and thresholds in words."""
    found = [pair for pair in pairs if pair.severity == severity]
    return ", or ".join(
        f"over {_percent(pair.threshold_ratio)} bad in {span(pair.long_s)} and in {span(pair.short_s)}"
        for pair in found
    )


def _budget(slo: Slo, slis: tuple[Sli, ...], pairs: tuple[BurnPair, ...], options: Options) -> Iterator[Recording]:
    labels = labels_of(slo)
    period = span(slo.period.length_s)
    yield Recording(OBJECTIVE, f"vector({number(slo.objective)})", labels)
    yield Recording(BUDGET, f"vector({number(slo.budget_ratio)})", labels)
    yield Recording(INFO, "vector(1)", {**labels, **_info(slo, pairs, options)})
    if slo.period.calendar:
        return  # PromQL has no window that begins with the month; goodwatch itself computes this one
    for sli in slis:
        own = {**labels, "target": sli.target}
        for name in (TOTAL, BAD):
            tiles = f"{name}{span(TILE_S)}{_series(slo, sli)}[{period}:{span(TILE_S)}]"
            yield Recording(f"{name}_period", f"sum_over_time({tiles})", {**own, "period": period})
        total, bad = f"{TOTAL}_period{_series(slo, sli)}", f"{BAD}_period{_series(slo, sli)}"
        # No traffic at all leaves the budget whole; no data leaves no number.
        left = f"1 - {bad} / ({total} > 0) / {number(slo.budget_ratio)} or ({total} == 0) + 1"
        yield Recording(BUDGET_LEFT, left, {**own, "period": period})


def _info(slo: Slo, pairs: tuple[BurnPair, ...], options: Options) -> dict[str, str]:
    return {
        "objective": f"{slo.objective:.12g}",  # as text: boards would round the number
        "period": _period(slo),
        "indicator": type(slo.indicator).__name__.lower(),
        "factors": ",".join(f"{pair.factor:.4g}" for pair in pairs),
        "owner": slo.owner,
        "by": ",".join(group_labels(slo, options)),
    }


def notes(slo: Slo, options: Options) -> Iterator[str]:
    """What the windows of this SLO do that a reader may not expect."""
    pairs = burn_pairs(slo.objective, slo.period.length_s, scrape_interval_s=options.scrape_interval_s)
    for pair in pairs:
        if pair.fitted:
            after = pair.fires_after_s(1.0)
            yield (
                f"{slo.name}: factor of the {pair.tier} window fitted to {pair.factor:.3g} (over "
                f"{_percent(pair.threshold_ratio)} bad), so that a total outage fires after {(after or 0) / 60:.0f} minutes"
            )
        elif pair.factor < 1:
            share = pair.factor * pair.long_s / slo.period.length_s
            yield f"{slo.name}: the {pair.tier} window tickets at {pair.factor:.3g} x burn, with {share:.0%} of the budget gone"
    if slo.period.calendar:
        yield f"{slo.name}: the budget of a calendar {slo.period.calendar} is computed by goodwatch, not by Prometheus"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.4g} %"


def _period(slo: Slo) -> str:
    return f"calendar {slo.period.calendar}" if slo.period.calendar else span(slo.period.length_s)
