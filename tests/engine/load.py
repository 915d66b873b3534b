"""Open-loop load on a local engine, with the truth as the client saw it: one JSON line a request.

``python -m tests.engine.load http://127.0.0.1:8000 FOLDER`` writes FOLDER/client_truth.jsonl and
FOLDER/phases.jsonl. Arrivals are Poisson and do not wait for answers, so an overload really queues. Only loopback
addresses are accepted, and phases are bounded in time and in requests in flight.

A row: request_id, phase, stream, start (Unix seconds), status (ok, http_error, timeout, disconnect, truncated),
http_status, headers_s, ttft_s, tpot_s, e2e_s, input_tokens, cached_tokens, output_tokens, chunk_ms (arrival of each
token event after the start). What was not seen is not in the row. All durations begin at the send; headers_s is the
answer's head, which vLLM sends for a stream just before its engine takes the request in.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import urlsplit

import aiohttp

MODEL = "tiny"
MAX_IN_FLIGHT = 300  # bounds how long a slow machine takes to drain
RAMP_EVERY_S, RAMP_FACTOR = 1.5, 1.5
QUIET_S = 2.5  # two scrapes: what ended before them is on the page
REQUEST_TIMEOUT_S = 180.0
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of load; token numbers are drawn evenly from ``(least, most)``."""

    name: str
    duration_s: float
    rate_per_s: float = 0.0
    input_tokens: tuple[int, int] = (20, 200)
    output_tokens: tuple[int, int] = (10, 60)
    burst: int = 0  # requests sent at once at the start
    unstreamed_ratio: float = 0.0
    ramp_until_in_flight: int = 0  # raise the rate until so many are in flight, then hold it
    until_idle: bool = False  # send nothing, end when nothing was in flight for QUIET_S


# Each load is followed by quiet, so that its requests can be told from the next one's.
SCENARIO: Final = (
    Phase("warm_up", 6, 1.0),  # the first requests of a fresh engine are slow
    Phase("warm_up_end", 15, until_idle=True),
    Phase("calm", 25, 2.0),
    Phase("calm_end", 15, until_idle=True),
    # How much is too much depends on the machine: 64 in flight are 48 in the queue of an engine that runs 16.
    Phase("overload", 12, 8.0, input_tokens=(50, 400), output_tokens=(40, 120), ramp_until_in_flight=64),
    Phase("overload_end", 90, until_idle=True),
    Phase("kv_pressure", 12, 0.5, input_tokens=(200, 600), output_tokens=(400, 900), burst=32),
    Phase("kv_pressure_end", 120, until_idle=True),
    Phase("recovery", 20, 2.0),
    Phase("recovery_end", 15, until_idle=True),
    Phase("unstreamed", 8, 2.0, unstreamed_ratio=0.7),
    Phase("unstreamed_end", 15, until_idle=True),
)


class Client:
    """Sends requests and writes one row for each."""

    def __init__(self, url: str, session: aiohttp.ClientSession, rows: TextIO, *, seed: int = 1) -> None:
        self._url = f"{url}/v1/completions"
        self._session = session
        self._rows = rows
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent = 0
        self.refused = 0  # not sent because too many were in flight

    @property
    def in_flight(self) -> int:
        """Requests without an end so far."""
        return len(self._tasks)

    async def run_phase(self, phase: Phase) -> None:
        """Send the phase's requests; returns when it is over, with requests perhaps still in flight."""
        if phase.until_idle:
            await self.finish(phase.duration_s)
            await asyncio.sleep(QUIET_S)
            return
        start_s = time.monotonic()
        rate_per_s, is_ramping = phase.rate_per_s, phase.ramp_until_in_flight > 0
        for _ in range(phase.burst):
            self._send(phase)
        while (elapsed_s := time.monotonic() - start_s) < phase.duration_s:
            is_ramping = is_ramping and self.in_flight < phase.ramp_until_in_flight
            if is_ramping:
                rate_per_s = phase.rate_per_s * RAMP_FACTOR ** (elapsed_s // RAMP_EVERY_S)
            gap_s = self._random.expovariate(rate_per_s)
            await asyncio.sleep(min(gap_s, phase.duration_s - elapsed_s))
            if elapsed_s + gap_s < phase.duration_s:
                self._send(phase)

    async def finish(self, timeout_s: float) -> None:
        """Wait until nothing is in flight, ``timeout_s`` at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    def _send(self, phase: Phase) -> None:
        if self.in_flight >= MAX_IN_FLIGHT:
            self.refused += 1
            return
        self._sent += 1
        stream = self._random.random() >= phase.unstreamed_ratio
        body = self._body(phase, stream=stream)
        row = {"request_id": f"{phase.name}-{self._sent}", "phase": phase.name, "stream": stream}
        task = asyncio.create_task(self._one(body, row))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _body(self, phase: Phase, *, stream: bool) -> dict[str, Any]:
        length = self._random.randint(*phase.input_tokens)
        body: dict[str, Any] = {
            "model": MODEL,
            "prompt": [self._random.randrange(300, 4000) for _ in range(length)],
            "max_tokens": self._random.randint(*phase.output_tokens),
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        return body

    async def _one(self, body: dict[str, Any], row: dict[str, Any]) -> None:
        row["start"] = round(time.time(), 4)
        began_s = time.perf_counter()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._exchange(body, row, began_s)
        except TimeoutError:
            row["status"] = "timeout"
        except (aiohttp.ClientError, ConnectionError) as error:
            row |= {"status": "disconnect", "error": type(error).__name__}
        row["e2e_s"] = round(time.perf_counter() - began_s, 5)
        row |= latencies(row)
        self._rows.write(json.dumps(row) + "\n")
        self._rows.flush()

    async def _exchange(self, body: dict[str, Any], row: dict[str, Any], began_s: float) -> None:
        headers = {"X-Request-Id": row["request_id"]}
        async with self._session.post(self._url, json=body, headers=headers) as reply:
            row |= {"http_status": reply.status, "headers_s": round(time.perf_counter() - began_s, 5)}
            if reply.status != 200:
                row |= {"status": "http_error", "error": (await reply.text())[:300]}
            elif body["stream"]:
                await read_stream(reply.content, row, began_s)
            else:
                row |= usage((await reply.json())["usage"]) | {"status": "ok"}


async def read_stream(content: aiohttp.StreamReader, row: dict[str, Any], began_s: float) -> None:
    """Note in ``row`` when each token event came and what the last one says of tokens."""
    arrivals_ms = row["chunk_ms"] = []
    row["status"] = "truncated"
    async for raw in content:
        line = raw.decode().strip()
        if not line.startswith("data:"):
            continue
        now_ms = round((time.perf_counter() - began_s) * 1000, 2)
        payload = line.removeprefix("data:").strip()
        if payload == "[DONE]":
            row["status"] = "ok"
            continue
        event = json.loads(payload)
        if event.get("choices"):
            arrivals_ms.append(now_ms)
        if event.get("usage"):
            row |= usage(event["usage"])


def usage(said: dict[str, Any]) -> dict[str, int]:
    """Token numbers of an OpenAI ``usage`` object, in our words."""
    tokens = {"input_tokens": said["prompt_tokens"], "output_tokens": said["completion_tokens"]}
    cached = (said.get("prompt_tokens_details") or {}).get("cached_tokens")
    return tokens if cached is None else tokens | {"cached_tokens": cached}


def latencies(row: dict[str, Any]) -> dict[str, float]:
    """TTFT and TPOT of a row in seconds, as far as they were seen."""
    arrivals_ms: Sequence[float] = row.get("chunk_ms") or ()
    if not arrivals_ms:
        return {}
    found = {"ttft_s": round(arrivals_ms[0] / 1000, 5)}
    tokens = row.get("output_tokens", 0)
    if row["status"] == "ok" and tokens > 1:
        found["tpot_s"] = round((arrivals_ms[-1] - arrivals_ms[0]) / 1000 / (tokens - 1), 6)
    return found


async def drive(url: str, folder: Path, scenario: Sequence[Phase]) -> None:
    """Run the phases one after the other; rows and phases go to ``folder``."""
    # A connection for each request: one that the server is about to close for idleness would fail the request.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None)
    truth_path, phases_path = folder / "client_truth.jsonl", folder / "phases.jsonl"
    with truth_path.open("a") as rows, phases_path.open("a") as phases:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            client = Client(url, session, rows)
            start_s = time.time()
            for phase in scenario:
                await client.run_phase(phase)
                end_s = time.time()
                said = {"phase": phase.name, "start": round(start_s, 3), "end": round(end_s, 3)}
                line = json.dumps(said | {"in_flight_at_end": client.in_flight, "refused": client.refused})
                phases.write(line + "\n")
                phases.flush()
                print(line, flush=True)
                start_s = end_s  # phases touch: nothing falls between two of them
            await client.finish(REQUEST_TIMEOUT_S)


def main() -> None:
    """Parse, refuse other machines, drive."""
    parser = argparse.ArgumentParser(description="Open-loop load on a local engine, with ground truth.")
    parser.add_argument("url", help="http://127.0.0.1:PORT of the engine")
    parser.add_argument("folder", type=Path, help="where client_truth.jsonl and phases.jsonl are written")
    arguments = parser.parse_args()
    if urlsplit(arguments.url).hostname not in LOOPBACK:
        parser.error(f"url: {arguments.url} is another machine; load goes to a loopback address only")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(drive(arguments.url.rstrip("/"), arguments.folder, SCENARIO))


if __name__ == "__main__":
    main()
