"""Sampling weight told by a span's ``tracestate``. Pure.

Source: OpenTelemetry, "TraceState: Probability Sampling": member ``ot``, key ``th``; the threshold T is the text padded
right with zeros to 14 hex digits, the probability (2^56 - T) / 2^56.
"""

import re
from typing import Final

_MEMBER: Final = re.compile(r"(?:^|,)\s*ot=([^,]*)")
_THRESHOLD: Final = re.compile(r"(?:^|;)th:([^;]*)")
_HEX: Final = re.compile(r"[0-9a-f]{1,14}")
_SPAN: Final = 1 << 56
_LARGEST: Final = 1e9  # as of a ratio in an attribute: one span that stands for more is no sample of anything


def weight_of(tracestate: str) -> float | None:
    """1 / the sampling probability that the tracestate tells; None when it tells none. ``ValueError``: not readable.

    Examples
    --------
    >>> [weight_of(f"ot=th:{t}") for t in ("0", "8", "c")]
    [1.0, 2.0, 4.0]
    """
    member = _MEMBER.search(tracestate)
    if member is None:
        return None
    found = _THRESHOLD.search(member[1].strip())
    if found is None:
        return None
    if _HEX.fullmatch(found[1]) is None:
        raise ValueError(f"tracestate: th {found[1][:20]!r} is not 1 to 14 hex digits")
    weight = _SPAN / (_SPAN - int(found[1].ljust(14, "0"), 16))
    if weight > _LARGEST:
        raise ValueError(f"tracestate: th {found[1]} keeps less than one of {_LARGEST:,.0f}")
    return weight
