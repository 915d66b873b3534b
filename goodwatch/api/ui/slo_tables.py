"""SLOs as rows, tiles and a budget chart. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from goodwatch.api.slo_shapes import at_most
from goodwatch.api.ui.bars import Bar, Tone
from goodwatch.api.ui.format import Shown, digits, money, percent, seconds, shown, span, utc
from goodwatch.api.ui.tiles import Tile
from goodwatch.app.slo_view import SloView
from goodwatch.core.model import Absence, Number
from goodwatch.core.slo import Availability, Cost, Custom, Forecast, JointGoodput, Latency, Quality, Slo
from goodwatch.signals.budget import TILE_S, CurvePoint, Eater, SloStatus, TargetStatus

#: below so much is left the page warns
_LITTLE: Final = 0.25
_HOUR_S: Final = 3600.0
#: a forecast beyond so many periods says nothing more
_FAR_PERIODS: Final = 4.0
WIDTH, HEIGHT = 600.0, 160.0
BY_TITLES: Final = {
    "target": "What was missed", "cause": "Cause", "band": "Input length", "tenant": "Tenant", "route": "Route",
    "model": "Model", "replica": "Replica",
}  # fmt: skip
BY_NOTES: Final = {"target": "counted over the whole period; one request can miss several"}
_OF_REQUESTS: Final = "of the single requests that are kept, at most 14 days"


@dataclass(frozen=True, slots=True)
class SloRow:
    """One SLO in the list."""

    view: SloView
    objective: str
    what: str
    left: Shown
    bar: Bar | None
    tone: Tone
    burns: tuple[tuple[str, Shown], ...]
    ends: Shown
    ends_note: str
    firing: tuple[str, ...]


def slo_row(view: SloView) -> SloRow:
    """One SLO now: the count with the least budget, and the count that burns fastest."""
    left, worst = left_shown(view), _worst(view)
    ends, note = ends_shown(view)
    ratio = worst.budget.left_ratio if left.kind == "value" and worst and worst.budget else None
    return SloRow(
        view, f"{percent(view.slo.objective)} % over {period_text(view.slo)}", what_text(view.slo), left,
        None if ratio is None else left_bar(ratio), "" if ratio is None else left_tone(ratio),
        tuple((span(length_s), burn_shown(view, length_s)) for length_s in (TILE_S, _first_long_s(view))),
        ends, note, tuple(dict.fromkeys(one.name for one in view.firing)),
    )  # fmt: skip


def slo_tiles(view: SloView) -> tuple[Tile, ...]:
    """The big numbers of one SLO."""
    row, worst = slo_row(view), _worst(view)
    period = worst.period if worst is not None else None
    (near, fast), (far, slow) = row.burns
    return (
        Tile(
            "Budget left", row.left, f"of {percent(view.slo.budget_ratio)} % that may be bad",
            "Share of the period's error budget; of the count with the least left.", row.tone, row.bar,
        ),
        Tile(f"Burn, {near}", fast, "1 × spends just the budget", "The count that burns fastest.", burn_tone(fast)),
        Tile(f"Burn, {far}", slow, "1 × spends just the budget", "The count that burns fastest.", burn_tone(slow)),
        Tile("Budget ends", row.ends, row.ends_note, "If the burn of the last day goes on; 95 % interval below."),
        Tile(
            "Bad", _count("no data" if period is None else digits(period.bad)),
            "" if period is None else f"of {digits(period.total)} in the period",
            "Events of the period so far, of the count with the least budget left.",
        ),
    )  # fmt: skip


def _count(text: str) -> Shown:
    return shown(None) if text == "no data" else Shown(text, "", "counted", "value", "measured")


def _worst(view: SloView) -> TargetStatus | None:
    return view.status.worst if view.status is not None else None


def _none(absence: Absence, note: str) -> Shown:
    return shown(Number.none("ratio", absence, note))


def left_shown(view: SloView) -> Shown:
    """What is left of the budget, or why nobody knows."""
    worst = _worst(view)
    if view.note or worst is None or worst.budget is None:
        return _none(Absence.NO_DATA, view.note or "no event of this SLO is known in its period")
    if worst.budget.broken:
        return _none(Absence.NO_DATA, "more good events than events were counted, so the counts cannot be right")
    if worst.period is not None and worst.period.total == 0:
        return Shown("100", "%", "nothing happened in the period, so nothing of the budget is spent", "value")
    bound = "at most: no series counts what misses several limits at once" if at_most(view.slo, worst) else ""
    return Shown(f"{'≤ ' if bound else ''}{left_text(worst.budget.left_ratio)}", "%", bound, "value")


def left_text(ratio: float) -> str:
    """A budget in per cent; below 0 it is overdrawn.

    Examples
    --------
    >>> left_text(0.5), left_text(0.0), left_text(-1.234), left_text(1.0)
    ('50', '0', '−123', '100')
    """
    return f"−{digits(-ratio * 100)}" if ratio < 0 else percent(ratio)


def left_tone(ratio: float) -> Tone:
    """Bad when nothing is left, a warning when little is."""
    return "bad" if ratio <= 0 else "warning" if ratio < _LITTLE else "good"


def left_bar(ratio: float) -> Bar:
    """What is left on a line from 0 to 100 %; overdrawn is a red stub."""
    return Bar(0.0, max(2.0, round(min(1.0, ratio) * 100, 2)), 0.0, left_tone(ratio), False)


def burn_shown(view: SloView, length_s: float, count: TargetStatus | None = None) -> Shown:
    """The burn over one window: of one count, or of the one that burns fastest."""
    status = view.status
    if status is None or not status.targets:
        return _none(Absence.NO_DATA, view.note or "no event is known")
    counts = status.targets if count is None else (count,)
    burns = [burn for one in counts if (burn := one.burn(length_s, view.slo.objective)) is not None]
    if burns:
        return Shown(digits(max(burns)), "×", "1 × spends the budget over just the period", "value")
    if any(one.windows.get(length_s) is not None for one in counts):
        return _none(Absence.NO_TRAFFIC, "")
    return _none(Absence.NO_DATA, "nothing was counted in this window")


def burn_tone(burn: Shown) -> Tone:
    """A warning above 1; thresholds decide on alerts, not this."""
    return "warning" if burn.kind == "value" and float(burn.text.replace(",", "").replace("∞", "inf")) > 1 else ""


def _first_long_s(view: SloView) -> float:
    pairs = view.status.pairs if view.status is not None else ()
    return min((pair.long_s for pair in pairs if pair.long_s > TILE_S), default=_HOUR_S)


def ends_shown(view: SloView) -> tuple[Shown, str]:
    """When the budget ends if the last day goes on, and its interval."""
    worst = _worst(view)
    if view.note or worst is None or worst.budget is None or worst.budget.broken:
        return _none(Absence.NO_DATA, view.note or "no budget is known"), ""
    if worst.budget.left_ratio <= 0:
        return Shown("used up", "", "nothing of the budget is left", "value"), ""
    if worst.forecast is None:
        return _none(Absence.NO_TRAFFIC, "nothing happened in the last day, so nothing tells when it ends"), ""
    return _forecast(worst.forecast, view.slo.period.length_s)


def _forecast(ends: Forecast, period_s: float) -> tuple[Shown, str]:
    far_s = _FAR_PERIODS * period_s
    soonest, latest = (_when(at_s, far_s) for at_s in (ends.soonest_s, ends.latest_s))
    text = "not in sight" if ends.expected_s is None or ends.expected_s > far_s else f"in {span(ends.expected_s)}"
    between = f"soonest in {soonest}" if latest == "never" else f"in {soonest} to {latest}"
    title = "if the burn of the last day goes on; the interval holds it with 95 % probability"
    return Shown(text, "", title, "value", "estimated"), between if soonest != "never" else ""


def _when(at_s: float | None, far_s: float) -> str:
    return "never" if at_s is None or at_s > far_s else span(at_s)


def period_text(slo: Slo) -> str:
    """The period in words."""
    return f"the {slo.period.calendar}" if slo.period.calendar else span(slo.period.length_s)


def what_text(slo: Slo) -> str:
    """What counts as good, in words."""
    match slo.indicator:
        case Availability():
            return "requests that are served"
        case Latency(signal, limit_s):
            return f"{signal.removesuffix('_seconds').upper()} at most {seconds(limit_s)}"
        case JointGoodput(limits):
            signals = {"TTFT": limits.ttft_s, "TPOT": limits.tpot_s, "E2E": limits.e2e_s}
            return " and ".join(f"{name} ≤ {seconds(s)}" for name, s in signals.items() if s is not None)
        case Quality(least, evaluator):
            return f"{evaluator or 'score'} of at least {digits(least)}"
        case Cost(usd, tokens):
            return f"minutes at most ${money(usd)} per million {tokens} tokens"
        case Custom():
            return "what its own queries count"


def scope_text(slo: Slo) -> str:
    """Which requests, where not all."""
    scope = slo.scope
    parts = {"model": scope.model, "tenant": scope.tenant, "route": scope.route, "input": scope.input_band}
    told = [f"{name} {value}" for name, value in parts.items() if value]
    return ", ".join([*told, *(f"by {name}" for name in scope.by)])


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A pair of windows against its threshold, for one count."""

    pair: str
    severity: str
    threshold: str
    count: str
    long: Shown
    short: Shown
    failures: str
    fires: bool


def window_rows(view: SloView) -> tuple[WindowRow, ...]:
    """Each pair of windows and each count."""
    status = view.status
    if status is None:
        return ()
    rows = []
    for pair in status.pairs:
        for one in status.targets:
            events = one.windows.get(pair.long_s)
            rows.append(
                WindowRow(
                    f"{span(pair.long_s)} and {span(pair.short_s)}", pair.severity,
                    f"> {digits(pair.factor)} ×{' (fitted)' if pair.fitted else ''}", count_text(status, one),
                    burn_shown(view, pair.long_s, one), burn_shown(view, pair.short_s, one),
                    "–" if events is None else f"{digits(events.bad)} of {digits(events.total)}",
                    one.fires(pair, status.slo.min_failures),
                )
            )  # fmt: skip
    return tuple(rows)


def count_text(status: SloStatus, one: TargetStatus) -> str:
    """Name of a count: its target and what it is split by."""
    return " · ".join([one.target, *(value or "not told" for value in one.group)])


@dataclass(frozen=True, slots=True)
class EaterTable:
    """What ate the budget, by one column."""

    title: str
    note: str
    rows: tuple[tuple[str, str, str, str, str, Bar], ...]  # key, bad, share of bad, of the budget, own error ratio
    problem: str


def eater_tables(eaters: Mapping[str, Sequence[Eater]], problems: Mapping[str, str]) -> tuple[EaterTable, ...]:
    """Tables of those that are known; a column with one untold value says nothing and is left out."""
    tables = []
    for by, found in eaters.items():
        problem = problems.get(by, "")
        if not problem and not [one for one in found if one.key is not None]:
            continue
        note = BY_NOTES.get(by, _OF_REQUESTS)
        tables.append(EaterTable(BY_TITLES[by], note, tuple(_eater_row(one) for one in found[:10]), problem))
    return tuple(tables)


def _eater_row(one: Eater) -> tuple[str, str, str, str, str, Bar]:
    own = "–" if one.error_ratio is None else f"{percent(min(1.0, one.error_ratio))} %"
    share = min(1.0, one.share_ratio)
    bar = Bar(0.0, max(1.5, round(share * 100, 2)), 0.0, "bad", False)
    key = "not told" if one.key is None else one.key or "(empty)"
    return key, f"{digits(one.bad)} of {digits(one.total)}", f"{percent(share)} %", f"{digits(one.budget_ratio * 100)} %", own, bar  # fmt: skip


@dataclass(frozen=True, slots=True)
class BudgetChart:
    """The budget over time as lines of an SVG of ``WIDTH`` × ``HEIGHT``; ``ideal`` is where even spending would be."""

    paths: tuple[str, ...]
    dots: tuple[tuple[float, float, str], ...]
    zero_y: float
    ideal: tuple[float, float, float, float]
    ideal_text: str
    top: str
    bottom: str
    start_s: float
    end_s: float
    label: str


def budget_chart(view: SloView, curve: Sequence[CurvePoint]) -> BudgetChart | None:
    """The chart; None where no budget is known. Gaps are left where there are no data."""
    status = view.status
    known = [(one.at_s, one.left_ratio) for one in curve if one.left_ratio is not None]
    if status is None or not known:
        return None
    rolls = not view.slo.period.calendar
    start_s, end_s = (curve[0].at_s, curve[-1].at_s) if rolls else (status.starts_s, status.ends_s)
    least = min(0.0, *(left for _, left in known))
    length_s, height = max(1.0, end_s - start_s), 1.0 - least

    def place(at_s: float, left: float) -> tuple[float, float]:
        return round((at_s - start_s) / length_s * WIDTH, 1), round((1.0 - left) / height * HEIGHT, 1)

    zero_y = place(start_s, 0.0)[1]
    dots = tuple((*place(at, left), f"{utc(at, '%Y-%m-%d %H:%M')} UTC: {left_text(left)} % left") for at, left in known)
    ideal = (0.0, zero_y, WIDTH, zero_y) if rolls else (0.0, 0.0, WIDTH, zero_y)
    text = "a burn of just 1 stays on this line" if rolls else "even spending over the period"
    lowest = "0 %" if least == 0 else f"{left_text(least)} %"
    label = f"Budget left from {utc(known[0][0], '%Y-%m-%d %H:%M')}: {left_text(known[0][1])} %, now {left_text(known[-1][1])} %"  # fmt: skip
    return BudgetChart(_paths(curve, place), dots, zero_y, ideal, text, "100 %", lowest, start_s, end_s, label)


def _paths(curve: Sequence[CurvePoint], place: Callable[[float, float], tuple[float, float]]) -> tuple[str, ...]:
    paths: list[list[str]] = [[]]
    for one in curve:
        if one.left_ratio is None:
            paths.append([])
        else:
            x, y = place(one.at_s, one.left_ratio)
            paths[-1].append(f"{x},{y}")
    return tuple(" ".join(points) for points in paths if len(points) > 1)
