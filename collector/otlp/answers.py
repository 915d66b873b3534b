"""Answers to senders: one value, rendered as OTLP wants it over HTTP (protobuf or JSON) and over gRPC.

Sources: the OTLP specification 1.11, "Failures", "OTLP/HTTP response"; google.rpc.Code for the numbers.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from collector.otlp.kinds import Kind

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"


class Code(Enum):
    """How a request was answered, as (label, HTTP status, gRPC and google.rpc code)."""

    OK = ("ok", 200, 0)
    BAD = ("bad", 400, 3)  # INVALID_ARGUMENT: never sent again
    UNAUTHENTICATED = ("unauthenticated", 401, 16)
    UNKNOWN_PATH = ("unknown_path", 404, 5)
    METHOD = ("method", 405, 12)
    SLOW = ("slow", 408, 4)
    TOO_LARGE = ("too_large", 413, 8)  # RESOURCE_EXHAUSTED without RetryInfo: never sent again
    UNSUPPORTED = ("unsupported", 415, 3)
    OVERLOADED = ("overloaded", 429, 8)  # RESOURCE_EXHAUSTED with RetryInfo: sent again
    FAULT = ("fault", 500, 13)
    UNAVAILABLE = ("unavailable", 503, 14)

    def __init__(self, label: str, http: int, grpc: int) -> None:
        self.label = label
        self.http = http
        self.grpc = grpc


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. ``rejected`` items were not kept and must not be sent again; ``retry_after_s``: send again then."""

    code: Code
    message: str = ""
    rejected: int = 0
    retry_after_s: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the request was acknowledged, at least in part."""
        return self.code is Code.OK


class RefusedError(Exception):
    """A request that is answered with an error, raised where that is found out."""

    def __init__(self, code: Code, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.answer = Answer(code, message, retry_after_s=retry_after_s)


def taken(refused: Mapping[str, int], omitted: Mapping[str, int]) -> Answer:
    """The answer to a request that was kept: what of it was refused (items) and what was left out of kept items."""
    said = [f"refused {_listed(refused)}"] if refused else []
    said += [f"kept without {_listed(omitted)}"] if omitted else []
    return Answer(Code.OK, "; ".join(said), rejected=sum(refused.values()))


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {reason}" for reason, count in sorted(reasons.items()))


def http_body(kind: Kind | None, answer: Answer, media: str) -> bytes:
    """The message of an answer in the encoding that the sender used; ``kind`` is None for an unknown path."""
    if answer.ok and kind is not None:
        return _partial_json(kind, answer) if media == JSON else grpc_body(kind, answer)
    if media == JSON:
        return json.dumps({"code": answer.code.grpc, "message": answer.message}).encode()
    return status_of(answer)


def _partial_json(kind: Kind, answer: Answer) -> bytes:
    if not answer.message:
        return b"{}"
    first, *rest = kind.rejected.split("_")
    field = first + "".join(word.title() for word in rest)
    return json.dumps({"partialSuccess": {field: str(answer.rejected), "errorMessage": answer.message}}).encode()


def grpc_body(kind: Kind, answer: Answer) -> bytes:
    """The response message of an acknowledged request; partial_success stays unset when all was kept."""
    response = kind.response()
    if answer.message:
        setattr(response.partial_success, kind.rejected, answer.rejected)
        response.partial_success.error_message = answer.message
    return bytes(response.SerializeToString())


def status_of(answer: Answer) -> bytes:
    """A google.rpc.Status; with RetryInfo where sending again helps."""
    status = Status(code=answer.code.grpc, message=answer.message)
    if answer.retry_after_s is not None:
        status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=answer.retry_after_s)))
    return bytes(status.SerializeToString())


#: HTTP exporters that drop what was answered with 429, and the first version that sends it again. vLLM and SGLang use
#: the one of Python. Source: its ``_is_retryable`` in the releases 1.26, 1.33, 1.37, 1.40, 1.43, 1.44 and 1.45.
RETRIES_429_SINCE: Final[Mapping[str, tuple[int, int]]] = {"OTel-OTLP-Exporter-Python": (1, 45)}
_AGENT: Final = re.compile(r"([\w.-]+)/(\d{1,6})\.(\d{1,6})")


def http_status(answer: Answer, user_agent: str) -> int:
    """The HTTP status; overload is told as 503 to senders that would drop their data at 429."""
    if answer.code is Code.OVERLOADED and (agent := _AGENT.match(user_agent)) is not None:
        since = RETRIES_429_SINCE.get(agent[1])
        if since is not None and (int(agent[2]), int(agent[3])) < since:
            return Code.UNAVAILABLE.http
    return answer.code.http
