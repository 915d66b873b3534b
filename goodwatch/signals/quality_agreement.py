"""Whether a judge agrees with people who looked at the same requests. Pure."""

from typing import Final

import polars as pl

from goodwatch.core.quality import Agreement, cohens_kappa

_HUMAN: Final = "human"


def agreement(told: pl.DataFrame, *, first: str = "llm", second: str = _HUMAN) -> dict[str, Agreement]:
    """Cohen's kappa between two kinds of annotators, by evaluator.

    Parameters
    ----------
    told
        ``quality.JOINED``: scores with their requests and whether they pass.
    first, second
        Annotators: llm, human, code. Where one kind rated a request several times the last rating counts.

    Returns
    -------
    dict[str, Agreement]
        By evaluator that either of them used; people must use the evaluator's name for their labels to be compared.
    """
    rated = told.drop_nulls("passed").filter(pl.col("annotator").is_in([first, second]))
    last = rated.sort("ts", maintain_order=True).unique(
        ["trace_id", "fact_id", "evaluator", "annotator"], keep="last", maintain_order=True
    )
    key = ["trace_id", "fact_id", "evaluator"]
    one, other = (
        last.filter(pl.col("annotator") == kind).select(*key, pl.col("passed").alias(name))
        for kind, name in ((first, "one"), (second, "other"))
    )
    pairs = one.join(other, on=key).group_by("evaluator", "one", "other").len()
    counts = {(e, a, b): n for e, a, b, n in pairs.rows()}
    names = sorted(rated["evaluator"].unique().to_list())
    return {name: cohens_kappa(_table(counts, name)) for name in names}


def _table(counts: dict[tuple[str, bool, bool], int], evaluator: str) -> list[list[int]]:
    sides = (True, False)
    return [[counts.get((evaluator, one, other), 0) for other in sides] for one in sides]
