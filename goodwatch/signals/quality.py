"""Scores joined with the requests that they are about, however late they come. Pure.

A score belongs to the request whose span it names, else to that with its response id, else to all requests of its trace.
An evaluator often names a span around the request (a chain, a tool), which is no request itself: where the trace has one
request only, the score is about that one; where it has several, nobody can tell, and the score is left out and counted.
Of one identity (trace, span, response, evaluator, annotator, identifier) the last score wins.
"""

from typing import Any, Final

import polars as pl

from goodwatch.core.quality import PLAIN_LABELS, QualityRules, plain_word

#: what makes two scores the same one
IDENTITY: Final = ("trace_id", "span_id", "response_id", "evaluator", "annotator", "identifier")

#: one row per request and score that tells of it
JOINED: Final[dict[str, Any]] = {
    "trace_id": pl.String,
    "fact_id": pl.String,
    "evaluator": pl.String,
    "annotator": pl.String,
    "identifier": pl.String,
    "ts": pl.Float64,
    "score": pl.Float64,
    "label": pl.String,
    "passed": pl.Boolean,  # null: the score does not tell
    "screen": pl.Boolean,  # its pass proves nothing
}

#: what ``with_quality`` adds to a request
QUALITY: Final[dict[str, Any]] = {
    "passed": pl.Boolean,  # every verdict passed; null: no evaluator judged it (screens alone do not)
    "faulty": pl.Boolean,  # some verdict failed, a screen's included
    "scored_by": pl.List(pl.String),  # evaluators whose scores tell, in order
    "failed_by": pl.List(pl.String),  # those that failed it
}

_KEY: Final = ("trace_id", "fact_id")


def joined(facts: pl.DataFrame, scores: pl.DataFrame, rules: QualityRules) -> pl.DataFrame:
    """Each score beside the request that it is about.

    Parameters
    ----------
    facts
        Columns trace_id, fact_id, span_id, response_id (``request_frames.FACTS``). All requests of a trace should be
        there: whether a trace has one request only is told from them.
    scores
        ``request_frames.SCORES``; those of other requests are left out.
    rules
        What passes.

    Returns
    -------
    pl.DataFrame
        ``JOINED``, sorted by request, evaluator, annotator, identifier and ts.
    """
    ids = facts.select(*_KEY, "span_id", "response_id").unique(_KEY, keep="last", maintain_order=True)
    last = _last(scores).with_row_index("nth")
    found = pl.concat([_by_trace(ids, last), _by_response(ids, last)]).unique(["nth", *_KEY])
    ruled = _ruled(found.join(last.drop("trace_id", "span_id", "response_id"), on="nth"), rules)
    return ruled.select(pl.col(n).cast(t) for n, t in JOINED.items()).sort(
        *_KEY, "evaluator", "annotator", "identifier", "ts"
    )


def with_quality(facts: pl.DataFrame, scores: pl.DataFrame, rules: QualityRules) -> pl.DataFrame:
    """``facts`` in their order with the columns of ``QUALITY``."""
    return with_verdicts(facts, joined(facts, scores, rules))


def with_verdicts(facts: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """``facts`` with the columns of ``QUALITY``, from ``joined`` scores of them."""
    passed, screen, evaluator = pl.col("passed"), pl.col("screen"), pl.col("evaluator")
    verdicts = (
        told.drop_nulls("passed")
        .group_by(*_KEY)
        .agg(
            passed=pl.when((~screen).any()).then(passed.all()),
            faulty=(~passed).any(),
            scored_by=evaluator.unique().sort(),
            failed_by=evaluator.filter(~passed).unique().sort(),
        )
    )
    beside = facts.drop([name for name in QUALITY if name in facts.columns])
    out = beside.join(verdicts, on=list(_KEY), how="left", maintain_order="left")
    return out.with_columns(
        pl.col("faulty").fill_null(value=False),
        pl.col("scored_by", "failed_by").fill_null(pl.lit([], pl.List(pl.String))),
    )


def unjoined(facts: pl.DataFrame, scores: pl.DataFrame) -> int:
    """Scores of traces that are there which belong to none of their requests: nobody can tell which one is meant."""
    last = _last(scores).filter(pl.col("trace_id").is_in(facts["trace_id"].unique().to_list())).with_row_index("nth")
    ids = facts.select(*_KEY, "span_id", "response_id")
    return last.height - _by_trace(ids, last)["nth"].n_unique()


def _last(scores: pl.DataFrame) -> pl.DataFrame:
    """The last score of each identity; a null is like another null."""
    in_order = scores.sort("received_s", "ts", maintain_order=True, nulls_last=False)
    return in_order.unique(IDENTITY, keep="last", maintain_order=True)


def _by_trace(ids: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """Columns nth, trace_id, fact_id of scores that name a trace."""
    about = scores.select("nth", "trace_id", about_span="span_id", about_response="response_id").drop_nulls("trace_id")
    counted = ids.with_columns(alone=pl.len().over("trace_id") == 1)
    span, response = pl.col("about_span"), pl.col("about_response")
    hit = pl.when(span.is_not_null()).then(
        (span == pl.col("fact_id")) | (span == pl.col("span_id")).fill_null(value=False)
    )
    pairs = about.join(counted, on="trace_id").with_columns(
        hit=hit.otherwise(response == pl.col("response_id")).fill_null(value=False),
        names=span.is_not_null() | response.is_not_null(),
    )
    ours = ~pl.col("names") | pl.col("hit") | pl.col("alone")
    return pairs.filter(ours).select("nth", *_KEY)


def _by_response(ids: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """The same of scores that know the response id only."""
    about = scores.filter(pl.col("trace_id").is_null()).select("nth", "response_id").drop_nulls("response_id")
    return about.join(ids.drop_nulls("response_id"), on="response_id").select("nth", *_KEY)


def _ruled(rows: pl.DataFrame, rules: QualityRules) -> pl.DataFrame:
    """Rows with ``passed`` and ``screen``: ``QualityRules.passes`` for whole columns."""
    evaluators = rows["evaluator"].unique().to_list()
    of = {name: rules.rule(name) for name in evaluators if name is not None}
    words = {label: plain_word(label) for label in rows["label"].drop_nulls().unique().to_list()}
    pairs = rows.select("evaluator", "label").drop_nulls().unique().rows()
    told = [(e, x, of[e].labels.get(words[x]), PLAIN_LABELS.get(words[x])) for e, x in pairs]
    labels = pl.DataFrame(
        told,
        schema={"evaluator": pl.String, "label": pl.String, "own": pl.Boolean, "plain": pl.Boolean},
        orient="row",
    )
    limits = pl.DataFrame(
        [
            (n, r.pass_from, rules.pass_from if rules.is_clear(n) else None, r.lower_is_better, r.screen)
            for n, r in of.items()
        ],
        schema={
            "evaluator": pl.String, "own_from": pl.Float64, "usual_from": pl.Float64, "lower": pl.Boolean,
            "screen": pl.Boolean,
        },
        orient="row",
    )  # fmt: skip
    score, lower = pl.col("score"), pl.col("lower")

    def within(limit: str) -> pl.Expr:
        return pl.when(lower).then(score <= pl.col(limit)).otherwise(score >= pl.col(limit))

    return (
        rows.join(limits, on="evaluator")
        .join(labels, on=["evaluator", "label"], how="left")
        .with_columns(passed=pl.coalesce("own", within("own_from"), "plain", within("usual_from")))
    )
