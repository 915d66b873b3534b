"""Cut the request spans of a recording down to test data: ``python -m tests.truth.cut_spans RECORDING``.

Written beside the metrics of the same recording:

- ``spans.jsonl.xz``: one ``ExportTraceServiceRequest`` in OTLP/JSON a line, as the OpenTelemetry Collector's file exporter
  writes it. Spans that say something of a request are kept whole; start-up, web framework and decode-step spans are
  left out, and requests that followed each other from one process are joined.
- ``client_truth.jsonl.xz``: what was there, and from the recording the ids that rows are joined by, ``traceparent`` and
  ``response_id``.
"""

import gzip
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
STAGES = ("prefill_waiting", "prefill_forward", "decode_waiting", "decode_forward")
KINDS = {"SPAN_KIND_UNSPECIFIED": 0, "SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2, "SPAN_KIND_CLIENT": 3}
STATUSES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
SPANS_A_LINE = 400


def needed(scope: str, span: dict[str, Any]) -> bool:
    if scope == "sglang server":
        attributes = {a["key"] for a in span.get("attributes", [])}
        return span["name"] in STAGES or "rid" in attributes or "thread_label" in attributes
    return bool(span["name"] == "llm_request")


def plain(span: dict[str, Any]) -> dict[str, Any]:
    """A span as OTLP/JSON wants it: enums are integers."""
    status = {k: STATUSES[v] if k == "code" else v for k, v in span.get("status", {}).items()}
    return {k: v for k, v in span.items() if k not in ("links", "events", "flags")} | {
        "kind": KINDS[span["kind"]],
        "status": status,
    }


def batches(recording: Path) -> Iterator[dict[str, Any]]:
    held: dict[str, Any] = {}
    with gzip.open(recording / "otlp/decoded.jsonl.gz", "rt") as lines:
        for line in lines:
            for of_resource in json.loads(line)["resourceSpans"]:
                for of_scope in of_resource["scopeSpans"]:
                    name = of_scope["scope"]["name"]
                    kept = [plain(s) for s in of_scope["spans"] if needed(name, s)]
                    if not kept:
                        continue
                    origin = {"resource": of_resource["resource"], "scope": of_scope["scope"]}
                    if held and (held["origin"] != origin or len(held["spans"]) >= SPANS_A_LINE):
                        yield request(**held)
                        held = {}
                    held = held or {"origin": origin, "spans": []}
                    held["spans"] += kept
    if held:
        yield request(**held)


def request(origin: dict[str, Any], spans: list[dict[str, Any]]) -> dict[str, Any]:
    scopes = [{"scope": origin["scope"], "spans": spans}]
    return {"resourceSpans": [{"resource": origin["resource"], "scopeSpans": scopes}]}


def write(path: Path, rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def main(recording: Path) -> None:
    folder = DATA / recording.name
    write(folder / "spans.jsonl.xz", batches(recording))
    rows = [json.loads(line) for line in (recording / "client_truth.jsonl").read_text().splitlines()]
    ids = {r["request_id"]: {k: r[k] for k in ("traceparent", "response_id") if r.get(k)} for r in rows}
    with lzma.open(folder / "client_truth.jsonl.xz", "rt") as lines:
        known = [json.loads(line) for line in lines]
    write(folder / "client_truth.jsonl.xz", [row | ids[row["request_id"]] for row in known])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
