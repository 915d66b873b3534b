"""From the bytes of a body to a request: decompressed, parsed, and salvaged where a part is damaged."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from collector.otlp.answers import JSON
from collector.otlp.inflate import inflated
from collector.otlp.json_form import from_json
from collector.otlp.kinds import DecodeError, Kind, Message
from collector.otlp.salvage import Tally, salvaged


@dataclass(frozen=True, slots=True)
class Body:
    """One request as it came: ``media`` is a content type, ``encoding`` a content encoding, ``transport`` http or grpc."""

    kind: Kind
    transport: str
    media: str
    encoding: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A request and what of it is missing, by reason: whole items, and parts of items that are there."""

    request: Message
    refused: Mapping[str, int]
    omitted: Mapping[str, int]


def decoded(body: Body, limit_bytes: int) -> Decoded:
    """The request in a body. Blocking. Raises ``RefusedError`` when there is none, or it is over the limit."""
    data = inflated(body.data, body.encoding, limit_bytes)
    if body.media == JSON:
        request, tally = from_json(body.kind, data)
    else:
        request, tally = _from_protobuf(body.kind, data)
    return Decoded(request, dict(tally.items), dict(tally.parts))


def _from_protobuf(kind: Kind, data: bytes) -> tuple[Message, Tally]:
    try:
        return kind.request.FromString(data), Tally()
    except DecodeError:
        return salvaged(kind, data)
