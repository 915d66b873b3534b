"""How a request ended, from what its spans say: HTTP status, error type, finish reason, span status. Pure.

The outermost span that says something decides; a span without a status says only that its call returned, so an
explicit word further inside comes before it (an application that hangs up on a stream ends its span without error).
"""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from goodwatch.core.request import Outcome

#: HTTP statuses that are not just their class. 499 is nginx's "client closed request", 408 the server's own limit.
_HTTP: Final[dict[int, str]] = {
    408: Outcome.REFUSED,
    429: Outcome.REFUSED,
    499: Outcome.ABORTED,
    503: Outcome.REFUSED,
    504: Outcome.TIMEOUT,
}
#: goodwatch's finish reasons (``PARTS.finish_reason``); a "partial" leg says nothing of the request
_FINISH: Final[dict[str, str]] = {
    "stop": Outcome.OK,
    "length": Outcome.OK,
    "tool": Outcome.OK,
    "filter": Outcome.OK,
    "abort": Outcome.ABORTED,
    "timeout": Outcome.TIMEOUT,
    "error": Outcome.ERROR,
}
#: words in error types, in lower case; the first that fits. Exception names of the OpenAI SDK, LiteLLM, httpx, asyncio.
_ERRORS: Final = (
    ("timeout|deadline", Outcome.TIMEOUT),
    ("ratelimit|rate_limit|too.?many|overload|unavailable|throttl|exhausted", Outcome.REFUSED),
    ("cancel|abort|disconnect|generatorexit|client.?closed|broken.?pipe", Outcome.ABORTED),
    (
        "badrequest|bad_request|authentication|unauthor|permission|forbidden|notfound|not_found|unprocessable"
        "|invalid|contextwindow|context_length|validation|policyviolation|policy_violation",
        Outcome.CLIENT_ERROR,
    ),
)
#: SGLang closes the thread spans of a request that it dropped with these words; they say that it ended, not why
UNCLOSED: Final = "unclosed span"


def of_http(status: pl.Expr) -> pl.Expr:
    """Outcome of an HTTP status; null without one or outside 200–599."""
    by_class = (
        pl.when(status.is_between(200, 399))
        .then(pl.lit(Outcome.OK.value))
        .when(status.is_between(400, 499))
        .then(pl.lit(Outcome.CLIENT_ERROR.value))
        .when(status.is_between(500, 599))
        .then(pl.lit(Outcome.ERROR.value))
    )
    return status.replace_strict(_HTTP, default=by_class, return_dtype=pl.String)


def of_error(error_type: pl.Expr) -> pl.Expr:
    """Outcome of an error type: a status in digits, else by the words in it; anything else is an error."""
    text = error_type.str.to_lowercase()
    told = text.is_not_null() & ~text.str.contains(UNCLOSED, literal=True) & (text != "")
    by_word: Any = pl.when(~told).then(pl.lit(None, pl.String))  # polars has a type of its own for each link
    for words, outcome in _ERRORS:
        by_word = by_word.when(text.str.contains(words)).then(pl.lit(outcome.value))
    digits = of_http(text.str.extract(r"^(\d{3})$").cast(pl.Int64))
    return pl.coalesce(digits, by_word.otherwise(pl.lit(Outcome.ERROR.value)))


def of_finish(finish_reason: pl.Expr) -> pl.Expr:
    """Outcome of a finish reason; null where it says nothing."""
    return finish_reason.replace_strict(_FINISH, default=None, return_dtype=pl.String)


def explicit(prefix: str) -> pl.Expr:
    """What a part says of the outcome in so many words; null when nothing. Columns ``{prefix}_http_status`` …."""
    status = pl.col(f"{prefix}_status")
    by_status = pl.when(status == "error").then(pl.lit(Outcome.ERROR.value)).when(status == "ok").then(
        pl.lit(Outcome.OK.value)
    )  # fmt: skip
    return pl.coalesce(
        _failure(of_http(pl.col(f"{prefix}_http_status"))),
        of_error(pl.col(f"{prefix}_error_type")),
        of_finish(pl.col(f"{prefix}_finish_reason")),
        by_status,
        of_http(pl.col(f"{prefix}_http_status")),
    )


def _failure(outcome: pl.Expr) -> pl.Expr:
    """A 200 may be followed by an error event in the stream: as a success it is the last word, not the first."""
    return pl.when(outcome != Outcome.OK.value).then(outcome)


def of_fault(prefix: str, fault: str) -> pl.Expr:
    """Outcome of an engine part whose scheduler reported a fault; null where there was none or usage was told.

    SGLang 0.5.23 ends a request that was dropped while it waited with hardly any attribute on its span and an
    unclosed scheduler span: all 53 such spans of the recording are requests that their clients gave up.
    """
    usage = pl.col(f"{prefix}_output_tokens").is_not_null()
    http, error = pl.col(f"{fault}_http_status"), pl.col(f"{fault}_error_type")
    told = pl.coalesce(of_http(http), of_error(error), of_finish(pl.col(f"{fault}_finish_reason")))
    return (
        pl.when(usage | pl.col(f"{fault}_root").is_null())
        .then(None)
        .otherwise(pl.coalesce(told, pl.lit(Outcome.ABORTED.value)))
    )


def outcome(explicit_words: Sequence[pl.Expr], returned: Sequence[pl.Expr]) -> pl.Expr:
    """The outcome of a fact: explicit words outermost first, then parts that returned without a word.

    ``returned`` are booleans, null where the part does not exist.
    """
    quiet = pl.any_horizontal(*(r.fill_null(value=False) for r in returned))
    return pl.coalesce(
        *explicit_words, pl.when(quiet).then(pl.lit(Outcome.OK.value)), pl.lit(Outcome.UNKNOWN.value)
    ).alias("status")
