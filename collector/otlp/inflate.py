"""Compressed bodies, undone within a limit: what a gzip bomb can take is one step."""

import zlib
from typing import Final

from collector.otlp.answers import Code, RefusedError

#: encodings of bodies; the empty one is none. OTLP demands gzip; the Python exporter can send deflate (zlib).
ENCODINGS: Final = ("", "identity", "gzip", "deflate")

_STEP_BYTES: Final = 1024 * 1024


def inflated(data: bytes, encoding: str, limit_bytes: int) -> bytes:
    """The body as it was before compression. Raises ``RefusedError`` when it is over the limit or not what it says."""
    if encoding in ("", "identity"):
        return data
    pieces: list[bytes] = []
    size_bytes = 0
    try:
        while data:
            member = zlib.decompressobj(wbits=_window(encoding, data))
            while not member.eof:
                piece = member.decompress(data, _STEP_BYTES)
                size_bytes += len(piece)
                if size_bytes > limit_bytes:
                    raise RefusedError(Code.TOO_LARGE, over(limit_bytes, "decompressed "))
                pieces.append(piece)
                data = member.unconsumed_tail
                if not piece and not data and not member.eof:
                    raise RefusedError(Code.BAD, f"the {encoding} body was cut short; send it again whole")
            data = member.unused_data
    except zlib.error as error:
        raise RefusedError(Code.BAD, f"the body is said to be {encoding} and is not: {error}") from error
    return b"".join(pieces)


def _window(encoding: str, data: bytes) -> int:
    """What zlib calls the format; "deflate" is zlib's by RFC 9110, and bare deflate with some senders."""
    if encoding == "gzip":
        return 16 + zlib.MAX_WBITS
    zlib_header = len(data) >= 2 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
    return zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS


def over(limit_bytes: int, what: str = "") -> str:
    """What is said of a body that is over the limit."""
    return (
        f"the {what}body is over {limit_bytes} bytes; make the batches of the sender smaller, "
        "or raise otlp.body_limit_bytes"
    )
