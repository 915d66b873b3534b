"""What the receiver asks of those who use it: limits, where things go, and the shape of what the mapper gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from collector.otlp.kinds import Message
from goodwatch.core.ports import RequestStore


class Mapped(Protocol):
    """Spans of one request as rows. Every span is in ``frame``, in ``refused`` or in ``dropped``."""

    @property
    def frame(self) -> pl.DataFrame:
        """Kept spans as ``request_frames.PARTS``."""
        ...

    @property
    def spans(self) -> int:
        """Spans that were seen."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Spans that are wrong and not kept, by reason."""
        ...

    @property
    def dropped(self) -> Mapping[str, int]:
        """Spans that are fine and not needed, by class."""
        ...

    @property
    def oddities(self) -> Mapping[str, int]:
        """Fields of kept spans that were not used, by reason."""
        ...


class Mapper(Protocol):
    """Turns spans into parts of requests. Called in one thread."""

    def parts(self, request: Message, received_s: float) -> Mapped:
        """Parts of an ``ExportTraceServiceRequest`` that came at ``received_s``."""
        ...


#: takes a whole request that came at (Unix seconds), keeps what it wants before it returns, and returns what it
#: refused, by reason. Blocking; runs in the thread of the store; may raise ``StoreError``.
Take = Callable[[Message, float], Mapping[str, int]]

#: looks in a trace request for more than parts (scores, texts); blocking, in the thread that decodes. Returns what
#: keeps it, which runs in the thread of the store before the request is acknowledged and may raise ``StoreError``;
#: None: there is nothing.
Beside = Callable[[Message, float], Callable[[], object] | None]


@dataclass(frozen=True, slots=True)
class Seams:
    """Where things go.

    Without ``logs`` or ``metrics`` those requests are accepted and counted as ignored. ``authorised`` says whether a
    bearer token may send; None: no token is asked for.
    """

    mapper: Mapper
    store: RequestStore
    logs: Take | None = None
    metrics: Take | None = None
    beside: Beside | None = None
    authorised: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds memory and waiting. Worst case: ``queue_bytes`` + (1 + ``grpc_readers``) bodies being decoded or read.

    ``body_bytes`` holds before and after decompression. ``queue_bytes`` counts bodies from their first byte until they
    are answered. ``queue_age_s`` is how long the oldest may wait for its answer before new ones are refused: the
    SDKs give up after 10 s. ``group_bodies`` and ``linger_s`` say how many bodies, and for how long, one commit waits
    for while more are being decoded. A gRPC message is read whole by the library, so what is bounded
    there is how many are read at once.
    """

    body_bytes: int = 64 * 1024**2
    queue_bytes: int = 256 * 1024**2
    queue_age_s: float = 5.0
    body_timeout_s: float = 15.0
    linger_s: float = 0.1
    group_bodies: int = 16
    grpc_readers: int = 8
    retry_after_s: int = 1
    store_retry_after_s: int = 2
