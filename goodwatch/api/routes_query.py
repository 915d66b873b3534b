"""What a request asks for: instants, ranges, steps and names, from text. Wrong ones are problems with status 400."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from goodwatch.api.problem import ProblemError
from goodwatch.core.duration import duration_s, duration_text

#: the most steps of one range: more than a screen has pixels, and seconds of work
MAX_STEPS: Final = 2000
DEFAULT_RANGE_S: Final = 3600.0

_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)")
_RELATIVE: Final = re.compile(r"(?:now)?-(.+)")
#: 9999-12-31: what a later stage can still print; a larger number is milliseconds
_LATEST_S: Final = 253_402_300_799.0
_FORMS: Final = "write Unix seconds, RFC 3339 with a time zone (2026-03-04T03:12:00Z), now, or -1h"


@dataclass(frozen=True, slots=True)
class Range:
    """``[start_s, end_s)`` in Unix seconds; ``step_s`` None leaves the step to the service."""

    start_s: float
    end_s: float
    step_s: float | None = None


def instant_s(text: str, now_s: float, where: str) -> float:
    """Unix seconds of an instant: ``1772593920``, ``2026-03-04T03:12:00Z``, ``now``, ``-1h``.

    Raises ``ProblemError`` (400) for anything else; ``where`` is the parameter's name.

    Examples
    --------
    >>> instant_s("-1h30m", 10_000.0, "from"), instant_s("1970-01-01T01:00:00+01:00", 0.0, "to")
    (4600.0, 0.0)
    """
    shown = text.strip()[:64]
    if shown in ("", "now"):
        return now_s
    relative = _RELATIVE.fullmatch(shown)
    if relative is not None:
        try:
            return now_s - duration_s(relative[1])
        except ValueError as error:
            raise _wrong(where, f"{shown!r}: {relative[1]!r} {error}") from error
    # An unescaped + of a time zone arrives as a space.
    stamp = re.sub(r" (\d\d:\d\d)$", r"+\1", shown) if shown.count(":") >= 2 else shown
    if _RFC3339.fullmatch(stamp):
        try:
            return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", stamp.upper())).timestamp()
        except (ValueError, OverflowError) as error:
            raise _wrong(where, f"{shown!r} is no such day or time; {_FORMS}") from error
    return _unix_s(shown, where)


def _unix_s(shown: str, where: str) -> float:
    try:
        at_s = float(shown)
    except ValueError as error:
        raise _wrong(where, f"{shown!r} is not a time; {_FORMS}") from error
    if not math.isfinite(at_s) or at_s < 0:
        raise _wrong(where, f"{shown!r} is not a time; {_FORMS}")
    if at_s > _LATEST_S:
        raise _wrong(where, f"{shown!r} is too large for seconds; milliseconds must be divided by 1000")
    return at_s


def asked_range(start: str | None, end: str | None, step: str | None, now_s: float) -> Range:
    """The range of a request: by default the last hour up to now. Raises ``ProblemError`` (400)."""
    end_s = instant_s(end or "now", now_s, "to")
    start_s = instant_s(start, now_s, "from") if start else end_s - DEFAULT_RANGE_S
    if start_s >= end_s:
        raise _wrong("from", "is not before to; write an earlier from or a later to")
    return Range(start_s, end_s, None if step is None else _step_s(step, end_s - start_s))


def _step_s(step: str, length_s: float) -> float:
    try:
        step_s = duration_s(step)
    except ValueError as error:
        raise _wrong("step", f"{step[:64]!r} {error}") from error
    if step_s < 1:
        raise _wrong("step", f"{step[:64]!r} is shorter than a second; write for example 60 or 1m")
    if length_s / step_s > MAX_STEPS:
        least = duration_text(float(math.ceil(length_s / MAX_STEPS)))
        raise _wrong("step", f"gives more than {MAX_STEPS} steps; write at least {least}, or a shorter range")
    return step_s


def asked_names(texts: Sequence[str], known: Collection[str]) -> list[str]:
    """Names of a request, comma-separated or repeated; all when none is given. Raises ``ProblemError`` (400)."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    unknown = sorted({name for name in names if name not in known})
    if unknown:
        shown = ", ".join(repr(name[:64]) for name in unknown[:5])
        raise _wrong("names", f"unknown: {shown}; the known ones are at /api/v1/meanings")
    return list(dict.fromkeys(names)) or list(known)


def unknown_name(kind: str, name: str, known: Sequence[str]) -> ProblemError:
    """A 404 that says what there is instead."""
    shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return ProblemError(404, f"no {kind} {name[:100]!r}; known: {shown or 'none yet'}")


def _wrong(where: str, what: str) -> ProblemError:
    return ProblemError(400, f"{where}: {what}", errors=[(where, what)])
