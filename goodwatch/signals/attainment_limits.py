"""Which latency targets a request is held to: by interaction form, tenant, route, model or service. Values only."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

import polars as pl

from goodwatch.core.model import Limits

#: what a row can ask of a fact, by columns of ``request_frames.FACTS``
_ASKED: Final = ("service", "model", "form", "tenant", "route")
#: targets by the word that ``missed`` uses
TARGETS: Final = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class LimitsRow:
    """Targets of the requests that match: every value that is not None must be equal. ``slo`` names them."""

    limits: Limits
    slo: str = "slo"
    service: str | None = None
    model: str | None = None
    form: str | None = None
    tenant: str | None = None
    route: str | None = None

    def matches(self) -> pl.Expr:
        """Whether a fact is held to this row; a fact that does not tell a value does not match it."""
        asked = [(c, getattr(self, c)) for c in _ASKED if getattr(self, c) is not None]
        conditions = [(pl.col(c) == value).fill_null(value=False) for c, value in asked]
        return pl.all_horizontal(*conditions) if conditions else pl.lit(value=True)


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """Rows in order; the first that matches a request counts. A request that none matches has no SLO."""

    rows: tuple[LimitsRow, ...] = ()

    @classmethod
    def of(cls, limits: Limits, slo: str = "slo") -> "LimitsTable":
        """The same targets for every request."""
        return cls((LimitsRow(limits, slo),))

    def __iter__(self) -> Iterator[LimitsRow]:
        return iter(self.rows)

    def columns(self) -> list[pl.Expr]:
        """``slo`` ("" without one) and ``ttft_limit``, ``tpot_limit``, ``e2e_limit`` (seconds, null without one)."""
        at = pl.coalesce(
            *(pl.when(row.matches()).then(pl.lit(i, pl.Int32)) for i, row in enumerate(self.rows)), pl.lit(-1, pl.Int32)
        )
        values: dict[str, dict[int, float | None]] = {
            f.name: {i: getattr(row.limits, f.name) for i, row in enumerate(self.rows)} for f in fields(Limits)
        }
        names = {i: row.slo for i, row in enumerate(self.rows)}
        return [
            at.replace_strict(names, default="", return_dtype=pl.String).alias("slo"),
            *(
                at.replace_strict(values[f"{t}_s"], default=None, return_dtype=pl.Float64).alias(f"{t}_limit")
                for t in TARGETS
            ),
        ]
