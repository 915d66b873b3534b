"""Compressed bodies within their limit."""

import gzip
import zlib

import pytest

from collector.otlp.answers import Code, RefusedError
from collector.otlp.inflate import inflated

BODY = b"spans " * 1000


def bare(data: bytes) -> bytes:
    """Deflate without the frame of zlib."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("", BODY),
        ("identity", BODY),
        ("gzip", gzip.compress(BODY)),
        ("gzip", gzip.compress(BODY[:100]) + gzip.compress(BODY[100:])),  # RFC 1952: members follow each other
        ("deflate", zlib.compress(BODY)),  # RFC 9110, 8.4.1.2, and what the Python exporter sends
        ("deflate", bare(BODY)),
        ("gzip", b""),
    ],
)
def test_a_body_comes_out_whole(encoding: str, data: bytes) -> None:
    assert inflated(data, encoding, len(BODY)) == (BODY if data else b"")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_over_the_limit_is_refused_before_it_is_all_there(encoding: str) -> None:
    bomb = (gzip if encoding == "gzip" else zlib).compress(bytes(30_000_000))
    with pytest.raises(RefusedError, match="decompressed body is over 1000000 bytes") as caught:
        inflated(bomb, encoding, 1_000_000)
    assert caught.value.answer.code is Code.TOO_LARGE


@pytest.mark.parametrize(
    ("encoding", "data"),
    [("gzip", b"not gzip"), ("deflate", b"\xff\xff\xff"), ("gzip", gzip.compress(BODY)[:-20]), ("gzip", gzip.compress(BODY) + b"more")],
)  # fmt: skip
def test_what_is_not_what_it_says_is_bad(encoding: str, data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        inflated(data, encoding, 10_000)
    assert caught.value.answer.code is Code.BAD
