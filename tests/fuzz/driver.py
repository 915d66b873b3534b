"""Mutated inputs without end: seeds are damaged and spliced, what behaves in a new way becomes a seed, what fails is cut.

No coverage is measured: a new *outcome* (which problems, which words) is what makes an input worth keeping.
"""

import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Final, Protocol

#: an input that keeps the CPU busy for so long hangs
HANG_S: Final = 10.0
#: memory that a run may add to what it began with, whatever it was fed
GROWTH_BYTES: Final = 400_000_000
_CORPUS: Final = 3_000
_CUT_S: Final = 10.0  # CPU for making a failing input smaller


class Wrong(Exception):  # noqa: N818 - reads as what it is
    """What was promised does not hold for an input."""


class Fuzzed(Protocol):
    """What is fuzzed."""

    @property
    def seeds(self) -> Sequence[bytes]:
        """Inputs to begin with."""
        ...

    @property
    def tokens(self) -> Sequence[bytes]:
        """What inputs of this kind are made of."""
        ...

    def outcome(self, body: bytes, rng: random.Random) -> str:
        """Feed one input; a word for how it went. Raises ``Wrong``, or whatever it should not."""
        ...


@dataclass(slots=True)
class Failure:
    """An input that failed, made smaller."""

    body: bytes
    error: str


@dataclass(slots=True)
class Report:
    """How a run went."""

    inputs: int = 0
    input_bytes: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    slowest: bytes = b""
    growth_bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Failure] = field(default_factory=dict)  # by kind of error, the first of each


def run(fuzzed: Fuzzed, *, seed: int, seconds: float = float("inf"), inputs: int | None = None) -> Report:
    """Feed inputs until ``seconds`` of this process's CPU or ``inputs`` are used up; the same seed, the same inputs."""
    rng, report, corpus = random.Random(seed), Report(), list(fuzzed.seeds)
    began_s, before = time.process_time(), _peak_bytes()
    for body in _endless(corpus, fuzzed.tokens, rng):
        at_s = time.process_time()
        if at_s - began_s >= seconds or report.inputs == inputs:
            break
        outcome = _fed(fuzzed, body, report, rng)
        took_s = time.process_time() - at_s
        report.inputs += 1
        report.input_bytes += len(body)
        if took_s > report.slowest_s:
            report.slowest_s, report.slowest = took_s, body
        if outcome not in report.outcomes and len(corpus) < _CORPUS:
            corpus.append(body)
        report.outcomes[outcome] += 1
    report.cpu_s, report.growth_bytes = time.process_time() - began_s, _peak_bytes() - before
    if report.growth_bytes > GROWTH_BYTES:
        report.failures["memory"] = Failure(b"", f"memory grew by {report.growth_bytes / 1e6:.0f} MB")
    return report


def _fed(fuzzed: Fuzzed, body: bytes, report: Report, rng: random.Random) -> str:
    state = rng.getstate()
    try:
        with watched():
            return fuzzed.outcome(body, rng)
    except Exception as error:  # noqa: BLE001 - whatever comes out is what is looked for
        kind = f"{type(error).__name__}: {str(error)[:60]}" if isinstance(error, Wrong) else type(error).__name__
        if kind not in report.failures:
            small = cut(body, partial(_fails_alike, fuzzed, type(error), state))
            report.failures[kind] = Failure(small, f"{type(error).__name__}: {error}"[:2_000])
        return f"FAILED {kind}"


def _fails_alike(fuzzed: Fuzzed, kind: type[Exception], state: object, body: bytes) -> bool:
    rng = random.Random()
    rng.setstate(state)  # type: ignore[arg-type]
    try:
        with watched():
            fuzzed.outcome(body, rng)
    except Exception as error:  # noqa: BLE001 - as above
        return type(error) is kind
    return False


def cut(body: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """A smaller input that still fails: pieces are taken out while that is so."""
    until_s, size = time.process_time() + _CUT_S, len(body) // 2
    while size:
        at = 0
        while at < len(body):
            if time.process_time() > until_s:
                return body
            smaller = body[:at] + body[at + size :]
            if fails(smaller):
                body = smaller
            else:
                at += size
        size //= 2
    return body


class Hangs(Exception):  # noqa: N818 - reads as what it is
    """An input kept the CPU busy for too long."""


@contextmanager
def watched(limit_s: float = HANG_S) -> Iterator[None]:
    """End what uses more than ``limit_s`` of CPU, regular expressions included. In the main thread only."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Hangs(f"more than {limit_s:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _endless(corpus: list[bytes], tokens: Sequence[bytes], rng: random.Random) -> Iterator[bytes]:
    yield from list(corpus)
    while True:
        body = rng.choice(corpus)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            body = mutated(body, corpus, tokens, rng)
        yield body


def mutated(body: bytes, corpus: Sequence[bytes], tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """One small damage: bytes changed, pieces cut, doubled, moved, taken from another input, lines shuffled."""
    a = rng.randrange(len(body) + 1)
    b = min(len(body), a + rng.choice((1, 1, 2, 4, 16, 64, 400)))
    way = rng.randrange(9)
    if way == 0:
        return body[:a] + bytes(rng.randrange(256) for _ in range(b - a)) + body[b:]
    if way == 1:
        return body[:a] + body[b:]
    if way == 2:
        return body[:b] + body[a:b] * rng.choice((1, 1, 2, 50)) + body[b:]
    if way in (3, 4):
        return body[:a] + rng.choice(tokens) + body[a if way == 3 else b :]
    if way == 5:
        other = rng.choice(corpus)
        c = rng.randrange(len(other) + 1)
        return body[:a] + other[c : c + rng.choice((10, 100, 1_000))] + body[b:]
    if way == 6:
        return body[: rng.randrange(len(body) + 1)]
    lines = body.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    if way == 7:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines.insert(i, lines[j])
    return b"\n".join(lines)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
