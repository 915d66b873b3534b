"""One load-test client process: OpenAI streaming requests with a stated arrival process, timed one by one.

    python -m goodwatch.app.bench_client < job.json > result.json

It runs in a process of its own, so that several use several cores and each can say how busy it was. Latencies count
from when a request was sent; how much later that was than due is told apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import aiohttp

from planner.experiments.sweep import Arrival, Client, Sent

#: how often the event loop's lateness is looked at, s
_TICK_S: Final = 0.01
#: an answer's line that is longer is no event of a chat
_LINE_BYTES: Final = 2**20
#: words of about one token each in usual vocabularies
_WORDS: Final = [
    "the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not",
    "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an", "they", "which", "one", "you",
    "were", "her", "all", "she", "there", "would", "their", "we", "him", "been", "has", "when", "who", "will",
    "more", "no", "if", "out", "so", "said", "what", "up", "its", "about",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does. ``level`` is its own share: requests at once (closed), or a second.

    The key is taken from the environment variable ``key_variable``, never handed over in a file.
    """

    url: str
    model: str
    level: float
    requests: int
    arrival: Arrival = "closed"
    input_tokens: int = 256
    output_tokens: int = 128
    seed: int = 1
    timeout_s: float = 120.0
    key_variable: str = ""


async def drive(job: Job) -> tuple[list[Sent], Client]:
    """Send the job's requests and wait for all of them; errors are in the result, never raised."""
    rng = random.Random(job.seed)  # noqa: S311  no secret is made
    key = os.environ.get(job.key_variable, "") if job.key_variable else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=job.timeout_s)
    connector = aiohttp.TCPConnector(limit=0)
    cpu, wall = time.process_time(), time.monotonic()
    late: list[float] = []
    watch = asyncio.create_task(_watch(late))
    try:
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector, headers=headers, read_bufsize=_LINE_BYTES
        ) as session:
            sent = await (_closed(session, job, rng) if job.arrival == "closed" else _open(session, job, rng))
    finally:
        watch.cancel()
    elapsed = time.monotonic() - wall
    lag = sorted(late)[int(0.99 * (len(late) - 1))] if late else None
    return sent, Client((time.process_time() - cpu) / elapsed if elapsed > 0 else None, lag)


async def _watch(late: list[float]) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(_TICK_S)
        late.append(max(0.0, time.monotonic() - before - _TICK_S))


async def _closed(session: aiohttp.ClientSession, job: Job, rng: random.Random) -> list[Sent]:
    """So many users, each with its next request as soon as the last is answered."""
    left = iter([_body(job, rng) for _ in range(job.requests)])
    found: list[Sent] = []

    async def user() -> None:
        for body in left:
            found.append(await _request(session, job, body, time.monotonic()))

    await asyncio.gather(*(user() for _ in range(max(1, round(job.level)))))
    return found


async def _open(session: aiohttp.ClientSession, job: Job, rng: random.Random) -> list[Sent]:
    """So many a second, whether or not earlier ones are answered."""
    due, tasks = time.monotonic(), []
    for _ in range(job.requests):
        due += rng.expovariate(job.level) if job.arrival == "poisson" else 1 / job.level
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(_request(session, job, _body(job, rng), due)))
    return list(await asyncio.gather(*tasks))


def _body(job: Job, rng: random.Random) -> dict[str, Any]:
    """A request; its words are drawn anew, so that no prefix cache has them."""
    prompt = " ".join(rng.choices(_WORDS, k=max(1, job.input_tokens)))
    return {
        "model": job.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": job.output_tokens,
        "ignore_eos": True,  # vLLM and SGLang: answers have the length that was asked for
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def _request(session: aiohttp.ClientSession, job: Job, body: Mapping[str, Any], due: float) -> Sent:
    begin, started_s = time.monotonic(), time.time()
    first: float | None = None
    last, tokens, chunks, error = begin, None, 0, ""
    try:
        async with session.post(f"{job.url.rstrip('/')}/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                error = f"HTTP {answer.status}"
            async for line in answer.content:
                event = _event(line)
                if event is None or error:
                    continue
                if _says(event):
                    last, chunks = time.monotonic(), chunks + 1
                    first = last if first is None else first
                usage = event.get("usage")
                if isinstance(usage, Mapping) and isinstance(usage.get("completion_tokens"), int):
                    tokens = usage["completion_tokens"]
                error = "error in the stream" if event.get("error") else ""
    except TimeoutError:
        error = f"no end within {job.timeout_s:g} s"
    except (aiohttp.ClientError, ValueError) as failure:  # ValueError: a line without an end
        error = type(failure).__name__
    if not error and first is None:
        error = "no token"
    ended = time.monotonic() if error else last
    ttft = None if first is None else first - begin
    return Sent(started_s, max(0.0, begin - due), ended - begin, ttft, tokens, chunks, error)


def _event(line: bytes) -> dict[str, Any] | None:
    """The JSON of a ``data:`` line of server-sent events; None for anything else."""
    if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
        return None
    try:
        event = json.loads(line[5:])
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _says(event: Mapping[str, Any]) -> bool:
    """Whether a chunk brings text: an answer's or the reasoning before it; the first one names only the role."""
    choices = event.get("choices")
    delta = (
        choices[0].get("delta") if isinstance(choices, list) and choices and isinstance(choices[0], Mapping) else None
    )
    return isinstance(delta, Mapping) and any(
        delta.get(k) for k in ("content", "reasoning_content", "reasoning", "tool_calls")
    )


def main() -> None:
    """Read a job from standard input, write its result to standard output."""
    told = json.load(sys.stdin)
    job = Job(**{one.name: told[one.name] for one in fields(Job) if one.name in told})
    sent, client = asyncio.run(drive(job))
    json.dump({"requests": [asdict(one) for one in sent], "client": asdict(client)}, sys.stdout)


if __name__ == "__main__":
    main()
