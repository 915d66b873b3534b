"""The big numbers above the pages of requests. Pure."""

from dataclasses import replace

from goodwatch.api.ui.bars import attainment_bar, tone_above
from goodwatch.api.ui.format import Shown, scalar, shown
from goodwatch.api.ui.tiles import Tile
from goodwatch.core.model import Bounds, Number
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment import Attained


def attained_tiles(attained: Attained, objective: float | None, vantage: Vantage) -> tuple[Tile, ...]:
    """Attainment without and with what is unaccounted, goodput, and the counts behind them."""
    note = "no objective" if objective is None else f"objective {' '.join(scalar('ratio', objective))}"
    by = f"judged by the {vantage.value}'s clock"
    unaccounted = attained.unaccounted
    return (
        _share("Attainment", attained.attainment, objective, note, f"Good over valid requests that ended, {by}."),
        _share(
            "With unaccounted", attained.with_unaccounted, objective, "if those are bad",
            "The same when requests that arrived and left no trace of an end count as valid and bad.",
        ),
        Tile("Goodput", _rate(attained.goodput_per_s, "/s"), "good requests", "Good requests per second."),
        Tile(
            "Token goodput", _rate(attained.good_tokens_per_s, "tok/s"), "of good requests",
            "Output tokens of good requests per second.",
        ),
        Tile("Valid", shown(attained.valid), "requests", "Requests that count: not the caller's own mistakes."),
        Tile(
            "Unaccounted", shown(unaccounted), "arrived, no end seen" if unaccounted.absence is None else "",
            unaccounted.note or "Requests that arrived and left no trace of an end: hung up, timed out, refused.",
            note_tone="warning" if unaccounted.value else "",
        ),
    )  # fmt: skip


def _share(label: str, number: Number, objective: float | None, note: str, help_text: str) -> Tile:
    exact = number.bounds or (None if number.value is None else Bounds(number.value, number.value))
    return Tile(label, shown(number), note, help_text, tone_above(exact, objective), attainment_bar(number, objective))


def _rate(number: Number, unit: str) -> Shown:
    return shown(replace(number, unit="1/s"), unit=unit)
