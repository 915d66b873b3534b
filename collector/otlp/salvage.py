"""Bodies that protobuf refuses as a whole, saved but for the part that is damaged.

One invalid byte in one text makes the parser of Python reject the whole request. Here the wire format is walked along the
damaged path only: whatever parses is kept byte for byte. What is damaged is left out as small as it can be
(a text, an attribute, an event, else its span) and counted by reason. Source: protobuf encoding reference, "Message structure".
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from collector.otlp.answers import Code, RefusedError
from collector.otlp.kinds import ITEMS, VALUES, DecodeError, Kind, Message, is_left_out

#: messages inside messages; upb stops at 100
_DEPTH_LIMIT: Final = 64

#: how often the bytes of a body may be looked at: bounds the time that a body made to be slow can take
_LOOKS_LIMIT: Final = 24
_LOOKS_FLOOR_BYTES: Final = 1024 * 1024

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class DamageError(Exception):
    """Something wrong inside a message: ``reason`` is a stable label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Tally:
    """What was left out: whole items (spans, …) and parts of items that were kept, by reason."""

    items: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)

    def add(self, message: Any, reason: str) -> None:
        """Count a message (descriptor) that was left out."""
        (self.items if message.full_name in ITEMS else self.parts)[reason] += 1


def salvaged(kind: Kind, data: bytes) -> tuple[Message, Tally]:
    """The request without what is damaged. Raises ``RefusedError`` when the damage is in the frame of the whole."""
    walk = _Walk(kind.request, _LOOKS_FLOOR_BYTES + _LOOKS_LIMIT * len(data))
    try:
        clean = walk.cleaned(data, kind.request.DESCRIPTOR, ())
        return kind.request.FromString(clean), walk.tally
    except (DamageError, DecodeError) as error:
        raise RefusedError(
            Code.BAD, f"the body is no OTLP {kind.name} request ({error}); check what the sender sends here"
        ) from error


class _Walk:
    """One pass over one body."""

    def __init__(self, root: type[Message], looks_bytes: int) -> None:
        self.tally = Tally()
        self._root = root
        self._looks_bytes = looks_bytes

    def cleaned(self, data: bytes, message: Any, outer: tuple[bytes, ...]) -> bytes:
        """``data`` of a message (descriptor) without its damage; ``outer`` are the tags that lead to it."""
        if len(outer) > _DEPTH_LIMIT:
            raise DamageError("nested_too_deep")
        fields = message.fields_by_number
        pieces: list[bytes] = []
        for number, wire, start, at, end in _fields(data):
            one = fields.get(number) if wire == _BYTES else None
            whole = data[start:end]
            if one is None or one.type not in (one.TYPE_STRING, one.TYPE_MESSAGE):
                pieces.append(whole)
            elif one.type == one.TYPE_STRING:
                if self._text_stays(data[at:end], message):
                    pieces.append(whole)
            else:
                pieces.append(self._member(data[at:end], message, one, outer))
        return b"".join(pieces)

    def _text_stays(self, text: bytes, message: Any) -> bool:
        try:
            text.decode()
        except UnicodeDecodeError:
            if message.full_name in VALUES or message.full_name.endswith(".KeyValue"):
                raise DamageError("invalid_utf8") from None  # the attribute goes, not only its text
            self.tally.parts["invalid_utf8"] += 1
            return False
        return True

    def _member(self, piece: bytes, message: Any, one: Any, outer: tuple[bytes, ...]) -> bytes:
        """A message inside ``message``, cleaned; nothing when it has to be left out."""
        tag = _varint_bytes(one.number << 3 | _BYTES)
        path = (*outer, tag)
        if self._parses(piece, path):
            return tag + _varint_bytes(len(piece)) + piece
        inner = one.message_type
        try:
            clean = self.cleaned(piece, inner, path)
            if inner.full_name in ITEMS and not self._parses(clean, path):
                raise DamageError("malformed")
        except DamageError as damage:
            if not is_left_out(message, inner):
                raise
            self.tally.add(inner, damage.reason)
            return b""
        return tag + _varint_bytes(len(clean)) + clean

    def _parses(self, piece: bytes, path: tuple[bytes, ...]) -> bool:
        """Whether the parser takes the piece where it stands: as deep inside the whole as it is."""
        self._looks_bytes -= len(piece)
        if self._looks_bytes < 0:
            raise RefusedError(Code.BAD, "too much of the body is damaged; check what the sender sends here")
        for tag in reversed(path):
            piece = tag + _varint_bytes(len(piece)) + piece
        try:
            self._root.FromString(piece)
        except DecodeError:
            return False
        return True


def _fields(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Fields of a message as (number, wire type, start, start of its value, end). Raises ``DamageError``."""
    start, size = 0, len(data)
    while start < size:
        tag, at = _varint(data, start)
        wire = tag & 7
        if wire == _BYTES:
            length, at = _varint(data, at)
            end = at + length
        elif wire == _VARINT:
            end = _varint(data, at)[1]
        elif wire in (_FIXED64, _FIXED32):
            end = at + (8 if wire == _FIXED64 else 4)
        else:
            raise DamageError("malformed")
        if end > size or tag >> 3 == 0:
            raise DamageError("malformed")
        yield tag >> 3, wire, start, at, end
        start = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for index in range(at, min(at + 10, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise DamageError("malformed")


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
