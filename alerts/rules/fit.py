"""Latency limits against the bucket bounds that a histogram has: only at a bound is a share known."""

from dataclasses import dataclass

from alerts.bounds import BOUNDS
from alerts.rules.sources import Native, numbers
from alerts.rules.values import Options


@dataclass(frozen=True, slots=True)
class Fit:
    """How a limit meets the bounds of one family, in the family's own unit.

    ``bound`` is where the rules count: the limit itself, or the next bound above it; None when there is none.
    ``exact`` says that the newest version has the limit as a bound, ``missing_in`` names older versions without it.
    """

    bound: float | None
    exact: bool
    known: tuple[float, ...] = ()
    missing_in: tuple[str, ...] = ()

    def near(self, limit: float) -> str:
        """The bounds around the limit, for a message."""
        return ", ".join(f"{b:g}" for b in sorted(sorted(self.known, key=lambda b: abs(b - limit))[:4]))


def fit(native: Native, limit_s: float, options: Options) -> Fit:
    """Where to count the requests within ``limit_s``. Unknown bounds are taken to hold the limit."""
    limit = float(f"{limit_s / native.source.scale:.12g}")
    family = native.source.metric
    live = options.bounds.get(family)
    if live is not None:
        sets = [("", live)]
    else:
        version = options.versions.get(native.engine.name)
        sets = [
            (b.until or "", b.bounds)
            for b in BOUNDS.get(family, ())
            if version is None or _holds(version, b.since, b.until)
        ]
    if not sets:
        return Fit(limit, exact=True)
    newest = sets[-1][1]
    missing = tuple(until for until, bounds in sets[:-1] if limit not in bounds)
    if limit in newest:
        return Fit(limit, exact=True, known=newest, missing_in=missing)
    return Fit(next((bound for bound in newest if bound > limit), None), exact=False, known=newest, missing_in=missing)


def _holds(version: str, since: str | None, until: str | None) -> bool:
    at = numbers(version)
    return not (since and at < numbers(since)) and not (until and at > numbers(until))
