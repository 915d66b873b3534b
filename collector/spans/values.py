"""One attribute's value read as its column needs it. What does not fit is null and counted by reason. Pure.

Reasons: ``wrong_type``, ``too_long``, ``too_large``, ``not_finite``, ``negative_latency``, ``negative_count``,
``bad_json``, ``bad_time``, ``bad_ratio``, ``unknown_finish_reason``. An empty value and an empty text are absent.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from collector.spans.content import PERSONS, digest
from collector.spans.limits import SpanLimits
from collector.spans.table import DEFAULT_PARSE, FINISH_REASONS, ROLES, Parse, Read

#: An attribute's value, where odd ones are counted, when the span began (ns) → the column's value, None: not told.
Reader = Callable[[AnyValue, Counter[str], int], Any]

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}(?:\.0{1,9})?")
_FLAGS: Final = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}
_JSON_BYTES: Final = 65536
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def reader_of(column: str, read: Read, limits: SpanLimits, *, zero_unknown: bool = False) -> Reader:
    """How the value of ``read.key`` becomes the column's value.

    Parameters
    ----------
    column
        A column of ``PARTS``.
    read
        The key and, where it is not the column's default, how it is read.
    limits
        What bounds a value.
    zero_unknown
        A count of 0 is absent.
    """
    match read.parse or DEFAULT_PARSE.get(column, Parse.TEXT):
        case Parse.TEXT | Parse.TEXT_OR_INT as parse:
            text = partial(_text, limit=limits.text_bytes, ints=parse is Parse.TEXT_OR_INT)
            return partial(_person, text=text) if read.key in PERSONS else text
        case Parse.COUNT:
            return partial(_count, limit=limits.tokens, zero_unknown=zero_unknown)
        case Parse.JSON_COUNT:
            return partial(_json_count, path=read.path, limit=limits.tokens, zero_unknown=zero_unknown)
        case Parse.SECONDS:
            return partial(_seconds, unit_s=read.unit_s, limit_s=limits.latency_s)
        case Parse.JSON_SINCE_START:
            return partial(_since_start, limit_s=limits.latency_s)
        case Parse.FLAG:
            return _flag
        case Parse.RATIO:
            return _weight
        case Parse.ROLE:
            return _role
        case Parse.FINISH:
            return _finish
        case Parse.FINISH_LIST:
            return _finish_list


def whole(value: AnyValue, odd: Counter[str]) -> int | None:
    """A whole number: an integer, a whole double, or either as text."""
    kind = value.WhichOneof("value")
    if kind == "int_value":
        return int(value.int_value)
    if kind == "double_value":
        return _whole_double(value.double_value, odd)
    if kind == "string_value" and _WHOLE.fullmatch(value.string_value):
        return int(value.string_value.partition(".")[0])
    _wrong(value, odd)
    return None


def number(value: AnyValue, odd: Counter[str]) -> float | None:
    """A finite number: a double or an integer (senders of JSON write 1.0 as 1)."""
    kind = value.WhichOneof("value")
    if kind == "double_value":
        if math.isfinite(value.double_value):
            return float(value.double_value)
        odd["not_finite"] += 1
        return None
    if kind == "int_value":
        return float(value.int_value)
    _wrong(value, odd)
    return None


def text_of(value: AnyValue, odd: Counter[str], limit_bytes: int) -> str | None:
    """A text within the limit; one longer than that is no id or name, and cutting it would make another one."""
    if value.WhichOneof("value") != "string_value":
        _wrong(value, odd)
        return None
    text: str = value.string_value
    if len(text) > limit_bytes or (len(text) * 4 > limit_bytes and len(text.encode()) > limit_bytes):
        odd["too_long"] += 1
        return None
    return text or None


def _wrong(value: AnyValue, odd: Counter[str]) -> None:
    kind = value.WhichOneof("value")
    if kind is not None and not (kind == "string_value" and not value.string_value):
        odd["wrong_type"] += 1


def _whole_double(value: float, odd: Counter[str]) -> int | None:
    if not math.isfinite(value):
        odd["not_finite"] += 1
        return None
    if not value.is_integer():
        odd["wrong_type"] += 1
        return None
    return int(value)


def _text(value: AnyValue, odd: Counter[str], _start_ns: int, *, limit: int, ints: bool) -> str | None:
    if ints and value.WhichOneof("value") == "int_value":
        return str(value.int_value)
    return text_of(value, odd, limit)


def _person(value: AnyValue, odd: Counter[str], start_ns: int, *, text: Reader) -> str | None:
    name = text(value, odd, start_ns)
    return None if name is None else digest(name)


def _within(found: int | None, odd: Counter[str], limit: int, *, zero_unknown: bool) -> int | None:
    if found is None or (zero_unknown and found == 0):
        return None
    if found < 0 or found > limit:
        odd["negative_count" if found < 0 else "too_large"] += 1
        return None
    return found


def _count(value: AnyValue, odd: Counter[str], _start_ns: int, *, limit: int, zero_unknown: bool) -> int | None:
    return _within(whole(value, odd), odd, limit, zero_unknown=zero_unknown)


def _json_count(
    value: AnyValue, odd: Counter[str], _start_ns: int, *, path: tuple[str, ...], limit: int, zero_unknown: bool
) -> int | None:
    found = _json(value, odd)
    if found is None:
        return None
    if not isinstance(found, dict):
        odd["wrong_type"] += 1
        return None
    for key in path:
        count = _within(_json_whole(found.get(key), odd), odd, limit, zero_unknown=zero_unknown)
        if count is not None:
            return count
    return None


def _json_whole(found: object, odd: Counter[str]) -> int | None:
    """A whole number inside a JSON text, as ``whole`` reads one outside."""
    if isinstance(found, bool) or not isinstance(found, int | float | str | None):
        odd["wrong_type"] += 1
        return None
    if isinstance(found, float):
        return _whole_double(found, odd)
    if isinstance(found, str):
        if _WHOLE.fullmatch(found):
            return int(found.partition(".")[0])
        if found:
            odd["wrong_type"] += 1
        return None
    return found


def _latency(found: float, odd: Counter[str], limit_s: float) -> float | None:
    if found < 0 or found > limit_s:  # -1 stands for "missing" in TensorRT-LLM, else a clock was set back
        odd["negative_latency" if found < 0 else "too_large"] += 1
        return None
    return found


def _seconds(value: AnyValue, odd: Counter[str], _start_ns: int, *, unit_s: float, limit_s: float) -> float | None:
    found = number(value, odd)
    return None if found is None else _latency(found * unit_s, odd, limit_s)


def _since_start(value: AnyValue, odd: Counter[str], start_ns: int, *, limit_s: float) -> float | None:
    found = _json(value, odd)
    if found is None or not start_ns:
        return None
    try:
        at = datetime.fromisoformat(found) if isinstance(found, str) else None
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:  # without a zone it could be any of 24
        odd["bad_time"] += 1
        return None
    since_start_ns = (at - _EPOCH) // _MICROSECOND * 1000 - start_ns  # whole numbers: no digit is lost
    return _latency(since_start_ns / 1e9, odd, limit_s)


def _json(value: AnyValue, odd: Counter[str]) -> object:
    text = text_of(value, odd, _JSON_BYTES)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        odd["bad_json"] += 1
        return None


def _flag(value: AnyValue, odd: Counter[str], _start_ns: int) -> bool | None:
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return bool(value.bool_value)
    if kind == "string_value" and value.string_value in _FLAGS:
        return _FLAGS[value.string_value]
    _wrong(value, odd)
    return None


def _weight(value: AnyValue, odd: Counter[str], _start_ns: int) -> float | None:
    found = number(value, odd)
    if found is None:
        return None
    if not 1e-9 <= found <= 1:
        odd["bad_ratio"] += 1
        return None
    return 1 / found


def _role(value: AnyValue, odd: Counter[str], _start_ns: int) -> str | None:
    text = text_of(value, odd, 256)
    return None if text is None else role_of(text)


def role_of(text: str) -> str | None:
    """The leg of disaggregated serving that the first word names; None when it names none."""
    word = text.strip().partition(" ")[0].lower()
    return word if word in ROLES else None


def _finish(value: AnyValue, odd: Counter[str], _start_ns: int) -> str | None:
    text = text_of(value, odd, 256)
    return None if text is None else _reason(text, odd)


def _finish_list(value: AnyValue, odd: Counter[str], _start_ns: int) -> str | None:
    if value.WhichOneof("value") == "array_value":
        values = value.array_value.values
        text = text_of(values[0], odd, 256) if values else None
        return None if text is None else _reason(text, odd)
    found = _json(value, odd)
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(one, str | None) for one in found[:1]):
        odd["wrong_type"] += 1
        return None
    return _reason(found[0], odd) if found and found[0] else None


def _reason(text: str, odd: Counter[str]) -> str | None:
    reason = FINISH_REASONS.get(text.lower())
    if reason is None:
        odd["unknown_finish_reason"] += 1
    return reason
