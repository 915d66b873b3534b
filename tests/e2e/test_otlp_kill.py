"""kill -9 under load: what was acknowledged is there, once. ``python -m tests.e2e.test_otlp_kill --rounds 20``.

A real receiver process over a store on disk; the exporters of the OpenTelemetry SDK as senders, two over HTTP and
two over gRPC. They send what was not acknowledged again, and now and then what was: as a sender does that lost the answer.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.support.otlp_receiver import identities
from tests.support.otlp_spans import REAL

SPANS = 64
Identity = tuple[str, str]


@dataclass
class Sender:
    """Sends batch after batch until told to stop; every batch is sent until it is acknowledged."""

    exporter: SpanExporter
    stop: threading.Event
    acknowledged: set[Identity] = field(default_factory=set)
    sent: set[Identity] = field(default_factory=set)
    failures: int = 0
    repeats: int = 0

    def run(self) -> None:
        tracer = TracerProvider().get_tracer("vllm.tracing.otel")
        number = 0
        while not self.stop.is_set():
            spans = _ended(tracer)
            ids = {identity(span) for span in spans}
            self.sent |= ids
            if not self._deliver(spans):
                return
            self.acknowledged |= ids
            number += 1
            if number % 5 == 0:  # the answer was lost on its way: the same again
                self.repeats += 1
                self._deliver(spans)

    def _deliver(self, spans: Sequence[ReadableSpan]) -> bool:
        while self.exporter.export(spans) is not SpanExportResult.SUCCESS:
            self.failures += 1
            if self.stop.wait(0.05):
                return False
        return True


def _ended(tracer: Any) -> list[ReadableSpan]:
    spans = [tracer.start_span("llm_request", attributes=dict(REAL)) for _ in range(SPANS)]
    for span in spans:
        span.end()
    return spans


def identity(span: ReadableSpan) -> Identity:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


@contextmanager
def receiver(path: Path, http_port: int, grpc_port: int) -> Iterator[subprocess.Popen[str]]:
    """A receiver process that listens; killed at the end."""
    command = [sys.executable, "-m", "tests.support.otlp_receiver", str(path), str(http_port), str(grpc_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def rounds(folder: Path, count: int, ports: tuple[int, int], chance: random.Random) -> dict[str, int]:
    """Kill the receiver ``count`` times under load; what was sent, acknowledged, kept, lost and doubled."""
    stop = threading.Event()
    url, address = f"http://127.0.0.1:{ports[0]}/v1/traces", f"127.0.0.1:{ports[1]}"
    exporters = [HttpSpans(url, timeout=3), GrpcSpans(address, insecure=True, timeout=3)]
    exporters += [HttpSpans(url, timeout=3), GrpcSpans(address, insecure=True, timeout=3)]
    senders = [Sender(exporter, stop) for exporter in exporters]
    threads = [threading.Thread(target=sender.run) for sender in senders]
    path = folder / "requests.duckdb"
    try:
        for number in range(count + 1):
            with receiver(path, *ports):
                if number == 0:
                    for thread in threads:
                        thread.start()
                acknowledged = [len(sender.acknowledged) for sender in senders]
                _wait_for_more(senders, acknowledged)
                time.sleep(chance.uniform(0, 0.3))  # any moment: between two bytes, in a commit, before an answer
                if number == count:  # the last one sees the senders off
                    stop.set()
                    for thread in threads:
                        thread.join(20)
    finally:
        stop.set()
        for sender in senders:
            sender.exporter.shutdown()
    return _compared(senders, identities(path))


def _wait_for_more(senders: Sequence[Sender], before: Sequence[int]) -> None:
    deadline = time.monotonic() + 20
    while any(len(sender.acknowledged) <= had for sender, had in zip(senders, before, strict=True)):
        assert time.monotonic() < deadline, "nothing was acknowledged for 20 s"
        time.sleep(0.02)


def _compared(senders: Sequence[Sender], kept: Sequence[Identity]) -> dict[str, int]:
    acknowledged = set().union(*(sender.acknowledged for sender in senders))
    sent = set().union(*(sender.sent for sender in senders))
    times = Counter(kept)
    return {
        "sent": len(sent),
        "acknowledged": len(acknowledged),
        "kept": len(times),
        "failed_exports": sum(sender.failures for sender in senders),
        "repeated_batches": sum(sender.repeats for sender in senders),
        "lost": len(acknowledged - times.keys()),
        "doubled": sum(count > 1 for count in times.values()),
        "strange": len(times.keys() - sent),
    }


@pytest.mark.integration
def test_every_acknowledged_span_is_there_once_after_kill_9(
    tmp_path: Path, free_ports: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    found = rounds(tmp_path, 3, free_ports, random.Random(4))
    assert found["acknowledged"] > SPANS
    assert found["repeated_batches"] > 0
    assert (found["lost"], found["doubled"], found["strange"]) == (0, 0, 0), found


@pytest.fixture
def free_ports() -> tuple[int, int]:
    return two_ports()


def two_ports() -> tuple[int, int]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def main() -> int:
    """Run rounds, print what was found; 1 when a span was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = rounds(Path(folder), options.rounds, two_ports(), random.Random())
    print(found)
    return 1 if found["lost"] or found["doubled"] or found["strange"] else 0


if __name__ == "__main__":
    sys.exit(main())
