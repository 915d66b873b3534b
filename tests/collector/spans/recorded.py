"""Export requests that real engines sent, as they came, beside what another decoder read in them.

Each line of ``data/NAME.jsonl.xz`` is one request: ``received_s``, ``body`` (base64 of the protobuf) and ``spans``, the
same spans as JSON (resource, scope, span). Cut from recordings of running engines:
``python -m tests.collector.spans.recorded RECORDING NUMBER...``.
"""

import base64
import gzip
import json
import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Recorded:
    received_s: float
    request: ExportTraceServiceRequest
    spans: list[dict[str, Any]]  # resource, scope, span


def names() -> list[str]:
    return sorted(path.name.removesuffix(".jsonl.xz") for path in _DATA.glob("*.jsonl.xz"))


def requests(name: str) -> list[Recorded]:
    with lzma.open(_DATA / f"{name}.jsonl.xz", "rt") as lines:
        return [_recorded(json.loads(line)) for line in lines]


def attributes(item: dict[str, Any]) -> dict[str, Any]:
    """Attributes of a decoded span or resource, whole numbers as such."""
    return {one["key"]: _plain(one["value"]) for one in item.get("attributes", [])}


def _plain(value: dict[str, Any]) -> Any:
    ((kind, plain),) = value.items()
    return int(plain) if kind == "intValue" else plain


def _recorded(line: dict[str, Any]) -> Recorded:
    body = base64.b64decode(line["body"])
    return Recorded(line["received_s"], ExportTraceServiceRequest.FromString(body), line["spans"])


def _cut(recording: Path, numbers: list[str]) -> None:
    with gzip.open(recording / "otlp/decoded.jsonl.gz", "rt") as lines:
        decoded = {one["file"]: one for one in map(json.loads, lines)}
    with lzma.open(_DATA / f"{recording.name}.jsonl.xz", "wt", preset=9 | lzma.PRESET_EXTREME) as out:
        for number in numbers:
            one = decoded[f"{number}.pb"]
            spans = [
                {"resource": of_resource["resource"], "scope": of_scope["scope"]["name"], "span": span}
                for of_resource in one["resourceSpans"]
                for of_scope in of_resource["scopeSpans"]
                for span in of_scope["spans"]
            ]
            body = base64.b64encode((recording / f"otlp/{number}.pb").read_bytes()).decode()
            out.write(json.dumps({"received_s": one["ts"], "body": body, "spans": spans}) + "\n")


if __name__ == "__main__":
    _cut(Path(sys.argv[1]), sys.argv[2:])
