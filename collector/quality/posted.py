"""Scores as callers post them, one by one checked; what is wrong with one does not keep the others out. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import polars as pl
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from goodwatch.signals.request_frames import SCORES

MOST_SCORES: Final = 10_000
#: scores come days later; a time further ahead than clocks differ is a mistake
_AHEAD_S: Final = 600.0
#: seconds since 2001; a smaller time is no time of an answer, a larger one is in milliseconds
_EARLIEST_S, _LATEST_S = 1e9, 1e11


def _hex(digits: int) -> Any:
    def checked(value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.strip().lower().replace("-", "") if digits == 32 else value.strip().lower()
        if len(text) != digits or not set(text) <= set("0123456789abcdef") or not text.strip("0"):
            raise ValueError(f"is not {digits} hexadecimal digits")
        return text

    return BeforeValidator(checked)


def _instant(value: object) -> object:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError("is no time; write Unix seconds or RFC 3339 with a time zone") from error
        if value.tzinfo is None:
            raise ValueError("has no time zone; write Z or +01:00 at its end")
        return value.timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool) and not _EARLIEST_S <= value <= _LATEST_S:
        raise ValueError("is no time of these days in Unix seconds; milliseconds must be divided by 1000")
    return value


_PLAIN: Final = r"^[^\x00-\x1f\x7f]*$"
Name = Annotated[str, Field(min_length=1, max_length=128, pattern=_PLAIN)]
Word = Annotated[str, Field(min_length=1, max_length=256, pattern=_PLAIN)]
Reference = Annotated[str, Field(min_length=1, max_length=1024, pattern=_PLAIN)]


class PostedScore(BaseModel):
    """One score. It is about a trace, one span of it, or a response id; the same identity again replaces it.

    Identity: trace_id, span_id, response_id, evaluator, annotator, identifier.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    trace_id: Annotated[str, _hex(32)] | None = Field(None, description="32 hexadecimal digits.")
    span_id: Annotated[str, _hex(16)] | None = Field(None, description="16 hexadecimal digits; only with trace_id.")
    response_id: Word | None = Field(None, description="Id of the response, where the trace is not known.")
    evaluator: Name = Field(description="What was judged: faithfulness, helpfulness, …")
    score: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="0 to 1.")
    label: Word | None = Field(None, description="A word instead of a score, or beside it.")
    annotator: Literal["human", "llm", "code"] | None = Field(None, description="Who judged.")
    identifier: Word | None = Field(None, description="Tells scores of one evaluator apart: a person, a run.")
    ts: Annotated[float, BeforeValidator(_instant)] | None = Field(
        None, description="When it was given: Unix seconds or RFC 3339; now where it is missing."
    )
    explanation_ref: Reference | None = Field(None, description="Where the reason is: a link or an id.")
    service: Word | None = Field(None, description="Service, where it is known.")
    model: Word | None = Field(None, description="Model, where it is known.")

    @model_validator(mode="after")
    def _whole(self) -> "PostedScore":
        if self.trace_id is None and self.response_id is None:
            raise ValueError("no trace_id and no response_id: it is about nothing")
        if self.span_id is not None and self.trace_id is None:
            raise ValueError("span_id without trace_id; a span is known by both")
        if self.score is None and self.label is None:
            raise ValueError("no score and no label")
        return self


@dataclass(frozen=True, slots=True)
class Refusal:
    """One score that is not taken: its place in the batch, and (field, what is wrong) pairs; "" is the score itself."""

    index: int
    faults: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Posted:
    """Scores that can be kept (``SCORES``), and those that cannot."""

    frame: pl.DataFrame
    refused: tuple[Refusal, ...]


def posted(items: Sequence[object], now_s: float) -> Posted:
    """Check scores that came at ``now_s`` (Unix seconds); each by itself."""
    rows: list[dict[str, Any]] = []
    refused: list[Refusal] = []
    for index, item in enumerate(items):
        try:
            one = PostedScore.model_validate(item)
        except ValidationError as error:
            refused.append(Refusal(index, _faults(error)))
            continue
        if one.ts is not None and one.ts > now_s + _AHEAD_S:
            refused.append(Refusal(index, (("ts", "is in the future; is the sender's clock right?"),)))
            continue
        row = one.model_dump()
        rows.append(row | {"ts": now_s if one.ts is None else one.ts, "received_s": now_s})
    return Posted(pl.DataFrame(rows, schema=SCORES), tuple(refused))


def _faults(error: ValidationError) -> tuple[tuple[str, str], ...]:
    """Where and what, without the values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return tuple((".".join(str(step) for step in one["loc"])[:64], _plain(one["msg"])) for one in found[:10])


def _plain(message: str) -> str:
    message = message.removeprefix("Value error, ")
    if message.startswith("String should match pattern"):
        return "has control characters"
    if message.startswith("Extra inputs"):
        return "is not a field of a score"
    if message.startswith("Input should be a valid dictionary"):
        return "is not a JSON object"
    return message
