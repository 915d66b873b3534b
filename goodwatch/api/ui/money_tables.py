"""The bill and the quality of requests, as tiles, bars and tables. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from goodwatch.api.request_query import told
from goodwatch.api.ui.bars import Box, strip
from goodwatch.api.ui.chart_rows import Row
from goodwatch.api.ui.format import Shown, digits, interval, money, percent, shown
from goodwatch.api.ui.tiles import Tile
from goodwatch.app.judging import JudgeState
from goodwatch.core.model import Absence, Basis, Number
from goodwatch.core.quality import Agreement
from goodwatch.signals.quality_shares import QualityGroup, QualityNumbers
from goodwatch.signals.reconcile import Reconciled
from goodwatch.signals.request_cost import CLASS_TEXTS, CLASSES, CostLine, RequestCost

#: classes of requests whose money brought nothing
WASTED: Final = ("late", "failed", "aborted")
#: what the bill went to → colour of the palette
COLOURS: Final = {
    "good": "good", "late": "warning", "failed": "bad", "aborted": "p99", "unjudged": "muted", "idle": "line",
}  # fmt: skip
_TEXTS: Final = {**CLASS_TEXTS, "idle": "nothing ran; paid for all the same"}
_WIDTH: Final = 600.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the bill: where it lies on the bar, and in words."""

    name: str
    colour: str
    x: float
    width: float
    usd: str
    share: str
    text: str


def cost_tiles(cost: RequestCost) -> tuple[Tile, ...]:
    """The big numbers of the bill."""
    whole = cost.whole
    return (
        Tile(
            "Cost / 1M good", shown(whole.usd_per_million_good_tokens), "tokens; idle time in it",
            "Price of the GPUs held, over prompt and output tokens of good requests.",
        ),
        Tile("At the knee", shown(cost.knee), "busiest good 5 min", "Per million good tokens: " + cost.knee.note),
        Tile(
            "Cost / 1M output", shown(whole.usd_per_million_output_tokens), "of these requests",
            "Price of the GPUs held, over all output tokens of the requests that are known one by one.",
        ),
        Tile("Bill", shown(cost.usd), "in the range", "Price of the GPUs held in the range."),
        Tile("Idle", shown(cost.idle_usd), _share_of(cost.idle_usd.value, cost.usd), "Time in which nothing ran."),
        Tile(
            "Wasted", shown(_wasted(cost)), _share_of(_wasted(cost).value, cost.usd),
            "Spent on requests that missed a target, failed or were aborted.",
        ),
    )  # fmt: skip


def known_partly(against: Reconciled) -> str:
    """What the costs per token rest on: the bill is of all requests, the tokens are of those known one by one."""
    if against.scale is None:
        return "" if against.basis is Basis.COUNTED else (
            "Nobody knows how many requests left no trace. Their tokens are missing, so costs per million are at most this."
        )  # fmt: skip
    if against.scale <= 1:
        return ""
    return (
        f"Only {percent(1 / against.scale)} % of the requests that the engine finished are known one by one. "
        "The bill is of all of them, so the others are taken to be like the known ones."
    )


def _wasted(cost: RequestCost) -> Number:
    if cost.whole.usd.absence is not None:
        return cost.whole.usd
    return Number("USD", cost.whole.usd.basis, sum(cost.usd_by_class.get(name, 0.0) for name in WASTED))


def _share_of(usd: float | None, bill: Number) -> str:
    return f"{percent(usd / bill.value)} % of the bill" if usd is not None and bill.value else ""


def bill_pieces(cost: RequestCost) -> tuple[Piece, ...]:
    """What the bill went to, on a bar of 600; empty when it cannot be split."""
    if cost.usd.value is None or cost.whole.usd.absence is not None or cost.usd.value <= 0:
        return ()
    amounts = {name: cost.usd_by_class.get(name, 0.0) for name in CLASSES} | {"idle": cost.idle_usd.value or 0.0}
    pieces, at = [], 0.0
    for name, usd in amounts.items():
        if usd <= 0:
            continue
        width = usd / cost.usd.value * _WIDTH
        share = f"{percent(usd / cost.usd.value)} %"
        pieces.append(Piece(name, COLOURS[name], round(at, 2), round(width, 2), f"${money(usd)}", share, _TEXTS[name]))
        at += width
    return tuple(pieces)


@dataclass(frozen=True, slots=True)
class MoneyRow:
    """One tenant, adapter, route, … on the bill."""

    key: str
    requests: str
    tokens: str
    usd: Shown
    wasted: str
    per_good: Shown
    per_output: Shown


def money_rows(lines: Iterable[CostLine]) -> tuple[MoneyRow, ...]:
    """Lines of the bill, most expensive first."""
    return tuple(
        MoneyRow(
            told(one.key), digits(one.requests), digits(one.output_tokens), shown(one.usd), _wasted_share(one),
            shown(one.usd_per_million_good_tokens), shown(one.usd_per_million_output_tokens),
        )
        for one in lines
    )  # fmt: skip


def _wasted_share(line: CostLine) -> str:
    if not line.usd.value:
        return "–"
    return f"{percent(min(1.0, sum(line.usd_by_class.get(name, 0.0) for name in WASTED) / line.usd.value))} %"


# -- quality ------------------------------------------------------------------------------------------------------------

QUALITY_COLUMNS: Final = (
    ("scored_ratio", "Scored"), ("quality_ratio", "Quality"), ("fast_but_wrong", "Fast but wrong"),
    ("quality_when_slow", "Quality when slow"), ("good_and_passed", "Good and passed"),
)  # fmt: skip


def quality_tiles(numbers: QualityNumbers) -> tuple[Tile, ...]:
    """The big numbers of quality; shares with their intervals below."""
    helps = {
        "scored_ratio": "Share of requests that an evaluator judged.",
        "quality_ratio": "Share of scored requests that pass.",
        "fast_but_wrong": "Of the scored requests that met every latency target, the share that failed.",
        "quality_when_slow": "Share that passes among scored requests that missed a target.",
        "good_and_passed": "Of valid requests; those without a score are inside the bounds.",
    }
    tiles = [
        Tile(title, shown(getattr(numbers, name)), interval_text(getattr(numbers, name)), helps[name])
        for name, title in QUALITY_COLUMNS
    ]
    likely = numbers.good_and_passed_likely
    return (*tiles, Tile("Good and passed, likely", shown(likely), interval_text(likely), likely.note))


def interval_text(number: Number) -> str:
    """The interval of a number that has one beside its point."""
    if number.bounds is None or number.value is None:
        return ""
    return " ".join(interval(number.unit, number.bounds)).strip()


@dataclass(frozen=True, slots=True)
class QualityRow:
    """The quality of the requests with one value of a column, and over time."""

    key: str
    requests: int
    scored: int
    cells: tuple[tuple[Shown, str], ...]
    boxes: tuple[Box, ...]


def quality_rows(
    groups: Sequence[QualityGroup], steps: Sequence[QualityGroup], start_s: float, end_s: float, step_s: float
) -> tuple[QualityRow, ...]:
    """One row a group; ``steps`` are the same groups by step of time."""
    by_key: dict[str | None, list[Row]] = {}
    for one in steps:
        number = one.numbers.quality_ratio
        if one.start_s is not None and number.absence is None and number.bounds is not None:
            ends = Row(one.start_s, one.start_s + step_s, number.value, number.bounds.low, number.bounds.high, "")
            by_key.setdefault(one.key, []).append(ends)
    return tuple(
        QualityRow(
            told(g.key), g.numbers.requests, g.numbers.scored,
            tuple((shown(n), interval_text(n)) for n in (getattr(g.numbers, name) for name, _ in QUALITY_COLUMNS)),
            strip(by_key.get(g.key, []), start_s, end_s, None),
        )
        for g in groups
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """What one evaluator says, and how well it agrees with people."""

    evaluator: str
    passes: Shown
    spread: str
    pairs: str
    agreed: Shown
    kappa: str


def agreement_rows(found: Mapping[str, Agreement], passes: Mapping[str, Number]) -> tuple[AgreementRow, ...]:
    """One row an evaluator."""
    rows = []
    for name in sorted({*found, *passes}):
        one, share = found.get(name, Agreement(0, None, None)), passes.get(name)
        if one.agreed_ratio is None:
            agreed = Number.none("ratio", Absence.NO_DATA, "no request was rated by both")
        else:
            agreed = Number("ratio", None, one.agreed_ratio)
        spread = "" if share is None else interval_text(share)
        rows.append(AgreementRow(name, shown(share), spread, digits(one.pairs), shown(agreed), _kappa(one)))
    return tuple(rows)


def judge_lines(judge: JudgeState | None) -> tuple[tuple[str, str], ...]:
    """What the judge did and spent today; empty without one."""
    if judge is None:
        return ()
    most = "" if judge.usd_per_day is None else f" of at most ${money(judge.usd_per_day)}"
    spent = shown(judge.usd)
    outcomes = ", ".join(f"{digits(count)} {name}" for name, count in judge.outcomes.items()) or "nothing yet"
    lines = [
        ("Model", judge.model), ("Spent today", f"{spent.line}{most}" if spent.kind == "value" else spent.title),
        ("Asked today", f"{digits(judge.calls)} of at most {digits(judge.calls_per_day)} calls (UTC day {judge.day})"),
        ("Since the start", outcomes),
    ]  # fmt: skip
    return (*lines, *([("Problem", judge.problem)] if judge.problem else []))


def _kappa(one: Agreement) -> str:
    if one.kappa is None:
        return "not told: " + ("chance alone explains it" if one.pairs else "no pair")
    ends = "" if one.low is None or one.high is None else f" ({one.low:.2f} to {one.high:.2f})"
    return f"{one.kappa:.2f}{ends}"
