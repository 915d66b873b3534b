"""Both doors of the OTLP receiver under mutated bodies: every one is answered, and never with a fault of ours.

    nice python -m tests.fuzz.otlp http --minutes 10 [--seed 1] [--out DIR]
    nice python -m tests.fuzz.otlp grpc --minutes 10

Seeds are bodies that real engines sent, as they came, in JSON and compressed. The receiver is the product's, with its
mapper, on loopback, over a store that keeps nothing but checks what it is given.
"""

import argparse
import asyncio
import copy
import gzip
import http.client
import json
import logging
import random
import re
import socket
import sys
import threading
import traceback
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import polars as pl
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from collector.otlp.answers import JSON, PROTOBUF
from collector.otlp.kinds import BY_PATH, KINDS, TRACES, Kind
from collector.otlp.receiver import OtlpReceiver
from collector.otlp.seams import Limits
from collector.spans.known import known_tables
from collector.spans.mapper import Mapper
from collector.spans.scores import scores_of_logs, scores_of_spans
from goodwatch.signals.request_frames import PARTS
from tests.collector.otlp.bodies import RECORDED, framed, recorded, spans_of
from tests.fuzz.__main__ import tell
from tests.fuzz.driver import Report, Wrong, mutated, run
from tests.support.otlp_json import otlp_json
from tests.support.otlp_receiver import receiving
from tests.support.otlp_spans import numbered

LIMITS: Final = Limits(body_bytes=2_000_000, body_timeout_s=2.0)
ANSWER_S: Final = 20.0  # a request that waits longer hangs
_STATUSES: Final = frozenset({200, 400, 404, 405, 408, 413, 415})
_CODES: Final = frozenset({"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"})
_HEALTHY_EVERY: Final = 50
_JSON_STARTS: Final = (b"{", b"[", b'"')

TOKENS: Final[Sequence[bytes]] = (
    b"\x0a", b"\x12", b"\x4a", b"\x0b", b"\x0c", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\xff" * 10, b"\x00" * 8,
    b"\x0a\x10" + b"\x01" * 16, b"\x12\x08" + b"\x00" * 8, b"\x0a\xff\xff\xff\xff\x0f", b"\xc3\x28", b"\xed\xa0\x80",
    b"\x39" + b"\xff" * 8, b"\x41" + b"\x01" * 8, b"\x2a\x02\x0a\x00" * 70, b"\x1f\x8b\x08\x00", b"x" * 5000,
    b"[", b"]", b"{", b"}", b'"', b"null", b"NaN", b'"Infinity"', b"-1", b"1e999", b"99999999999999999999",
    b'"\\ud800"', b'{"arrayValue":{"values":[' * 30, b'"stringValue"', b'"intValue":"', b'"attributes":[', b'"traceId":"',
    b"gen_ai.usage.prompt_tokens", b"gen_ai.evaluation.result", b"gen_ai.latency.e2e", b"ot=th:zz", b"evaluations.0.",
)  # fmt: skip


class CheckedStore:
    """Keeps nothing; a frame that is not as agreed is an error."""

    def append_parts(self, batches: Sequence[pl.DataFrame]) -> int:
        for frame in batches:
            if dict(frame.schema) != PARTS:
                raise ValueError(f"the mapper gave other columns: {frame.schema}")
        return sum(frame.height for frame in batches)


@contextmanager
def live_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on an event loop in a thread of its own."""
    up: threading.Event = threading.Event()
    state: dict[str, Any] = {}

    async def live() -> None:
        state["loop"], state["stop"] = asyncio.get_running_loop(), asyncio.Event()
        seams: dict[str, Any] = {
            "mapper": Mapper(known_tables().values()),
            "logs": lambda request, at_s: scores_of_logs(request, at_s).refused,
            "metrics": lambda _request, _at_s: {},
            "beside": lambda request, at_s: scores_of_spans(request, at_s).clear,
        }
        async with receiving(CheckedStore(), limits=LIMITS, **seams) as receiver:
            state["receiver"] = receiver
            up.set()
            await state["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert up.wait(20), "the receiver did not start"
    try:
        yield state["receiver"]
    finally:
        state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(30)


class _Faults(logging.Handler):
    """Tracebacks that the receiver logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        where = "".join(traceback.format_exception(error))[-1500:] if error else ""
        self.seen.append(f"{type(error).__name__}: {record.getMessage()}\n{where}")


class OtlpFuzz:
    """What both doors share: seeds, and that the receiver is whole after each input."""

    tokens = TOKENS

    def __init__(self, receiver: OtlpReceiver) -> None:
        bodies = [recorded(name) for name in RECORDED if len(recorded(name)) < 10_000]
        self._spans = [one.SerializeToString() for body in bodies for one in spans_of(TRACES.request.FromString(body))]
        self.seeds = [*bodies, numbered(0, 2).SerializeToString(), _log_body(), b""]
        self._receiver = receiver
        self._faults = _Faults()
        self._inputs = 0
        for name in ("collector", "aiohttp", "asyncio", "grpc"):
            logging.getLogger(name).addHandler(self._faults)

    def outcome(self, body: bytes, rng: random.Random) -> str:
        """How it was answered. Raises ``Wrong`` when it was not as it should be."""
        self._inputs += 1
        answer = self._answer(body, rng)
        if self._faults.seen:
            raise Wrong(f"a fault of ours: {self._faults.seen.pop()}")
        if self._inputs % _HEALTHY_EVERY == 0:
            self._check_health()
        return answer

    def _shaped(self, body: bytes, rng: random.Random) -> bytes:
        """Half of the time a whole request around one damaged span: most damage elsewhere ends at the frame."""
        if body[:1] in _JSON_STARTS or rng.random() < 0.5:
            return body
        span = rng.choice(self._spans)
        for _ in range(rng.choice((1, 1, 2, 3))):
            span = mutated(span, self._spans, TOKENS, rng)
        return framed(span, rng.choice(self._spans))

    def _check_health(self) -> None:
        if (answer := self._sent(TRACES, numbered(0, 3).SerializeToString(), PROTOBUF, "")) not in ("200 ", "OK "):
            raise Wrong(f"a good request was answered with {answer}")
        counts = self._receiver.counts
        if counts.held_bodies > 2 or counts.held_bytes > 2 * LIMITS.body_bytes:  # raw senders may be a moment behind
            raise Wrong(f"room is not given back: {counts.held_bodies} bodies, {counts.held_bytes} bytes")

    def _answer(self, body: bytes, rng: random.Random) -> str:
        raise NotImplementedError

    def _sent(self, kind: Kind, body: bytes, media: str, encoding: str) -> str:
        raise NotImplementedError


class HttpFuzz(OtlpFuzz):
    """Over one connection that is kept alive, with now and then a broken request on another."""

    def __init__(self, receiver: OtlpReceiver) -> None:
        super().__init__(receiver)
        self.seeds += [otlp_json(TRACES.request.FromString(one)) for one in self.seeds[:3]]
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        assert self._receiver.http_port is not None
        return http.client.HTTPConnection("127.0.0.1", self._receiver.http_port, timeout=ANSWER_S)

    def _answer(self, body: bytes, rng: random.Random) -> str:
        if rng.random() < 0.05:
            return self._raw(body)
        json_like = body[:1] in _JSON_STARTS
        body = (_bent if json_like and rng.random() < 0.5 else self._shaped)(body, rng)
        media = rng.choice((JSON, JSON, JSON, PROTOBUF) if json_like else (PROTOBUF, PROTOBUF, PROTOBUF, JSON))
        encoding = rng.choice(("", "", "", "gzip", "deflate"))
        if encoding and rng.random() < 0.8:
            body = gzip.compress(body, 1) if encoding == "gzip" else zlib.compress(body, 1)
        return self._sent(rng.choice((TRACES, TRACES, *KINDS)), body, media, encoding)

    def _sent(self, kind: Kind, body: bytes, media: str, encoding: str) -> str:
        headers = {"Content-Type": media} | ({"Content-Encoding": encoding} if encoding else {})
        try:
            self._connection.request("POST", kind.path, body, headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._connection = self._connect()
            raise Wrong(f"no answer: {type(error).__name__}: {error}") from error
        if response.status not in _STATUSES or response.getheader("Content-Type") != media:
            raise Wrong(f"answered with {response.status} {response.getheader('Content-Type')} {answer[:200]!r}")
        return f"{response.status} {_said(kind, response.status == 200, media, answer)}"

    def close(self) -> None:
        self._connection.close()

    def _raw(self, body: bytes) -> str:
        """The body as a whole HTTP request: mostly none at all."""
        assert self._receiver.http_port is not None
        with socket.create_connection(("127.0.0.1", self._receiver.http_port), timeout=ANSWER_S) as raw:
            try:
                raw.sendall(b"POST /v1/traces HTTP/1.1\r\n" + body)
                raw.shutdown(socket.SHUT_WR)
                return f"raw {raw.recv(100)[9:12].decode('ascii', 'replace')}"
            except (ConnectionResetError, BrokenPipeError):
                return "raw reset"


def _said(kind: Kind, ok: bool, media: str, answer: bytes) -> str:
    """The words of an answer without its numbers. Raises ``Wrong`` when it cannot be read."""
    try:
        if media == JSON:
            read = json.loads(answer)
            text = str(read.get("partialSuccess", {}).get("errorMessage", "") if ok else read["message"])
        elif ok:
            text = kind.response.FromString(answer).partial_success.error_message
        else:
            text = Status.FromString(answer).message
    except (ValueError, KeyError, DecodeError) as error:
        raise Wrong(f"the answer cannot be read: {answer[:200]!r}") from error
    return " ".join(re.findall(r"[a-z_]+", text))[:100]


class GrpcFuzz(OtlpFuzz):
    """Over one channel."""

    def __init__(self, receiver: OtlpReceiver) -> None:
        super().__init__(receiver)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{receiver.grpc_port}")

    def close(self) -> None:
        self._channel.close()

    def _answer(self, body: bytes, rng: random.Random) -> str:
        encoding = rng.choice(("", "", "gzip"))
        return self._sent(rng.choice((TRACES, TRACES, *KINDS)), self._shaped(body, rng), PROTOBUF, encoding)

    def _sent(self, kind: Kind, body: bytes, media: str, encoding: str) -> str:
        export = self._channel.unary_unary(
            f"/{kind.service}/Export", request_serializer=None, response_deserializer=None
        )
        try:
            answer = export(body, timeout=ANSWER_S, compression=grpc.Compression.Gzip if encoding else None)
        except grpc.RpcError as error:
            code = error.code().name  # type: ignore[attr-defined]
            if code not in _CODES:
                raise Wrong(f"answered with {code} {error.details()}") from error  # type: ignore[attr-defined]
            return f"{code} {' '.join(re.findall(r'[a-z_]+', error.details()))[:100]}"  # type: ignore[attr-defined]
        return f"OK {_said(kind, True, media, answer)}"


_LEAVES: Final[Sequence[Any]] = (
    None, True, False, 0, -1, 1e999, 2**63, -(2**63), 2**64, 0.5, "", "5", "NaN", "\ud800", "x" * 5000, [], {}, [[]],
    {"stringValue": "5"}, {"intValue": "x"}, {"intValue": "5"}, {"doubleValue": "Infinity"}, {"arrayValue": {"values": []}},
    "00" * 16, "zz", "0" * 15, [{"key": "gen_ai.latency.e2e", "value": {"doubleValue": -1}}],
)  # fmt: skip


def _bent(body: bytes, rng: random.Random) -> bytes:
    """JSON with some values replaced by others; as it is when it is no JSON."""
    try:
        root = {"": json.loads(body)}
    except (ValueError, RecursionError):
        return body
    for _ in range(rng.choice((1, 1, 2, 5))):
        at: Any = root
        while True:
            key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], dict | list) or not at[key] or rng.random() < 0.1:
                at[key] = copy.deepcopy(rng.choice(_LEAVES))
                break
            at = at[key]
    return json.dumps(root[""]).encode()


def _log_body() -> bytes:
    log = BY_PATH["/v1/logs"].request()
    record = (
        log.resource_logs.add().scope_logs.add().log_records.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
    )
    record.event_name = "gen_ai.evaluation.result"
    record.attributes.add(key="gen_ai.evaluation.score.value").value.double_value = 0.5
    return bytes(log.SerializeToString())


def fuzzed(door: str, **more: Any) -> Report:
    """One run over ``http`` or ``grpc``; ``more`` goes to the driver."""
    with live_receiver() as receiver:
        fuzz = HttpFuzz(receiver) if door == "http" else GrpcFuzz(receiver)
        try:
            return run(fuzz, **more)
        finally:
            fuzz.close()


def main() -> int:
    """Run and print."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz.otlp", description=__doc__)
    options.add_argument("door", choices=["http", "grpc"])
    options.add_argument("--minutes", type=float, default=10.0, help="CPU minutes of sender and receiver together")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, help="folder for failing inputs")
    said = options.parse_args()
    warnings.simplefilter("error")
    report = fuzzed(said.door, seed=said.seed, seconds=said.minutes * 60)
    tell(report)
    for outcome, count in report.outcomes.most_common(25):
        print(f"{count:8} {outcome}")
    if said.out and report.failures:
        said.out.mkdir(parents=True, exist_ok=True)
        for number, failure in enumerate(report.failures.values()):
            (said.out / f"otlp-{said.door}-{said.seed}-{number}").write_bytes(failure.body)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
