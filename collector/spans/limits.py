"""What bounds one span: how much of it is read, and which of its numbers can be true."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpanLimits:
    """Beyond these a value is not used and counted; a span is never refused for them.

    An instant further away than ``past_s`` or ``future_s`` from when the span came is a broken clock: a fact is
    corrected for 24 h, and requests take hours at most.
    """

    text_bytes: int = 4096  # of one kept attribute
    name_chars: int = 256  # of a span's name, which is cut
    attributes: int = 4096  # of one span
    tokens: int = 1_000_000_000
    latency_s: float = 7 * 86400.0
    past_s: float = 2 * 86400.0
    future_s: float = 600.0
