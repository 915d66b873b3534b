"""OTLP in JSON, read into the same protobuf messages.

protobuf's own JSON parser is not OTLP's: OTLP writes trace and span ids in hex and enums as integers. A value that is
not what its field asks for is never bent into it: the attribute, event or item around it is left out and counted.
Sources: OTLP specification 1.11, "JSON Protobuf Encoding"; protobuf documentation, "ProtoJSON format".
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from collector.otlp.answers import Code, RefusedError
from collector.otlp.kinds import VALUES, Kind, Message, is_left_out
from collector.otlp.salvage import DamageError, Tally

#: the same as protobuf's own limit with room to spare
_DEPTH_LIMIT: Final = 64

_HEX: Final = frozenset({"trace_id", "span_id", "parent_span_id"})
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Read = Callable[[Any], Any]


def from_json(kind: Kind, data: bytes) -> tuple[Message, Tally]:
    """The request that a JSON body holds. Raises ``RefusedError`` when it is no JSON or not a request's frame."""
    try:
        # bytes that are no UTF-8 become lone surrogates here and are told apart text by text below
        value = json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        what = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise RefusedError(Code.BAD, f"the body is no JSON ({what}); check what the sender sends here") from error
    tally = Tally()
    try:
        return _message(value, _plan(kind.request.DESCRIPTOR), tally, 0), tally
    except DamageError as damage:
        text = f"the body is no OTLP {kind.name} request ({damage}); check what the sender sends here"
        raise RefusedError(Code.BAD, text) from damage


@dataclass(frozen=True, slots=True)
class _Slot:
    """One field: how its value is read. ``inner`` is the plan of a message, ``left_out`` whether it may be missing."""

    name: str
    repeated: bool
    oneof: str | None
    read: Read | None
    inner: Any = None  # descriptor
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a message is read from a JSON object: its fields by their lowerCamelCase names."""

    make: type[Message]
    slots: Mapping[str, _Slot]
    strict: bool  # a text that is no UTF-8 takes the message with it


def _message(value: Any, plan: _Plan, tally: Tally, depth: int) -> Message:
    if not isinstance(value, dict):
        raise DamageError("wrong_type")
    if depth > _DEPTH_LIMIT:
        raise DamageError("nested_too_deep")
    fields: dict[str, Any] = {}
    chosen: set[str] = set()
    for key, given in value.items():
        slot = plan.slots.get(key)
        if slot is None or given is None:  # unknown keys are ignored, null is the same as not there
            continue
        if slot.oneof is not None:
            if slot.oneof in chosen:
                raise DamageError("two_values")
            chosen.add(slot.oneof)
        try:
            fields[slot.name] = _field(given, slot, tally, depth)
        except DamageError as damage:
            if damage.reason != "invalid_utf8" or plan.strict or slot.inner is not None:
                raise
            tally.parts[damage.reason] += 1
    return plan.make(**fields)


def _field(given: Any, slot: _Slot, tally: Tally, depth: int) -> Any:
    if not slot.repeated:
        kept = _members([given], slot, tally, depth)
        return kept[0] if kept else None
    if not isinstance(given, list):
        raise DamageError("wrong_type")
    return _members(given, slot, tally, depth)


def _members(given: list[Any], slot: _Slot, tally: Tally, depth: int) -> list[Any]:
    if slot.read is not None:
        return [slot.read(one) for one in given]
    plan = _plan(slot.inner)
    if not slot.left_out:
        return [_message(one, plan, tally, depth + 1) for one in given]
    kept = []
    for one in given:
        try:
            kept.append(_message(one, plan, tally, depth + 1))
        except DamageError as damage:
            tally.add(slot.inner, damage.reason)
    return kept


@cache
def _plan(message: Any) -> _Plan:
    name = message.full_name
    slots = {one.json_name: _slot(message, one) for one in message.fields}
    return _Plan(GetMessageClass(message), slots, strict=name in VALUES or name.endswith(".KeyValue"))


def _slot(message: Any, one: Any) -> _Slot:
    oneof = one.containing_oneof.name if one.containing_oneof is not None else None
    if one.type == FieldDescriptor.TYPE_MESSAGE:
        inner = one.message_type
        return _Slot(one.name, one.is_repeated, oneof, None, inner, is_left_out(message, inner))
    read = _hex if one.name in _HEX else _READ[one.type]
    return _Slot(one.name, one.is_repeated, oneof, read)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise DamageError("wrong_type")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DamageError("invalid_utf8") from None
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise DamageError("wrong_type")
    return value


def _whole(low: int, high: int) -> Read:
    """Reads integers of [low, high]: numbers, or texts of digits, as JSON has no 64-bit integers."""

    def read(value: Any) -> int:
        if (isinstance(value, str) and _WHOLE.fullmatch(value)) or (isinstance(value, float) and value.is_integer()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise DamageError("wrong_type")
        return value

    return read


def _real(value: Any) -> float:
    if isinstance(value, str):
        if value in _SPECIAL:
            return _SPECIAL[value]
        try:
            value = json.loads(value)
        except ValueError:
            raise DamageError("wrong_type") from None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DamageError("wrong_type")
    try:
        return float(value)
    except OverflowError:
        raise DamageError("wrong_type") from None


def _hex(value: Any) -> bytes:
    if not isinstance(value, str):
        raise DamageError("bad_id")
    try:
        return binascii.unhexlify(value)
    except ValueError:
        raise DamageError("bad_id") from None


def _base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise DamageError("wrong_type")
    try:  # both alphabets, with or without padding, as ProtoJSON says
        plain = value.rstrip("=").replace("-", "+").replace("_", "/")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        raise DamageError("wrong_type") from None


_U32, _S32 = _whole(0, 2**32 - 1), _whole(-(2**31), 2**31 - 1)
_U64, _S64 = _whole(0, 2**64 - 1), _whole(-(2**63), 2**63 - 1)
_READ: Final[Mapping[int, Read]] = {
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BOOL: _truth,
    FieldDescriptor.TYPE_BYTES: _base64,
    FieldDescriptor.TYPE_DOUBLE: _real,
    FieldDescriptor.TYPE_FLOAT: _real,
    FieldDescriptor.TYPE_ENUM: _S32,
    FieldDescriptor.TYPE_INT32: _S32,
    FieldDescriptor.TYPE_SINT32: _S32,
    FieldDescriptor.TYPE_SFIXED32: _S32,
    FieldDescriptor.TYPE_UINT32: _U32,
    FieldDescriptor.TYPE_FIXED32: _U32,
    FieldDescriptor.TYPE_INT64: _S64,
    FieldDescriptor.TYPE_SINT64: _S64,
    FieldDescriptor.TYPE_SFIXED64: _S64,
    FieldDescriptor.TYPE_UINT64: _U64,
    FieldDescriptor.TYPE_FIXED64: _U64,
}
