"""Requests to simulate: real ones, or drawn by seed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, isfinite
from random import Random

from goodwatch.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival; all columns have one length.

    ``arrived_s`` from any origin; ``input_tokens``, ``output_tokens`` at least 1; ``cached_tokens`` that are known to be
    in the prefix cache; ``prefix`` names a shared prefix of ``prefix_tokens`` (-1: none), which hits where a replica
    still holds it; ``priority``: lower goes first; ``patience_s``: how long a client waits for its first token.
    """

    arrived_s: array[float]
    input_tokens: array[int]
    output_tokens: array[int]
    cached_tokens: array[int]
    prefix: array[int]
    prefix_tokens: array[int]
    priority: array[int]
    patience_s: float = float("inf")

    def __len__(self) -> int:
        return len(self.arrived_s)


def trace(
    arrived_s: Iterable[float], input_tokens: Iterable[int], output_tokens: Iterable[int], *,
    cached_tokens: Iterable[int] | None = None, prefix: Iterable[int] | None = None,
    prefix_tokens: Iterable[int] | None = None, priority: Iterable[int] | None = None, patience_s: float = float("inf"),
) -> Trace:  # fmt: skip
    """A trace from columns, in any order of arrival.

    Raises
    ------
    ConfigError
        Columns of unlike length, or a value that no request has: says which.
    """
    arrived = array("d", arrived_s)
    n = len(arrived)
    ints = [
        ("input_tokens", array("q", input_tokens), 1),
        ("output_tokens", array("q", output_tokens), 1),
        ("cached_tokens", array("q", cached_tokens if cached_tokens is not None else bytes(8 * n)), 0),
        ("prefix", array("q", prefix if prefix is not None else [-1] * n), -1),
        ("prefix_tokens", array("q", prefix_tokens if prefix_tokens is not None else bytes(8 * n)), 0),
        ("priority", array("q", priority if priority is not None else bytes(8 * n)), -(2**31)),
    ]
    if any(not isfinite(one) for one in arrived):
        raise ConfigError("arrived_s: holds a time that is not finite")
    for name, column, least in ints:
        if len(column) != n:
            raise ConfigError(f"{name}: {len(column):,} values for {n:,} requests")
        if n and min(column) < least:
            raise ConfigError(f"{name}: {min(column)} at request {column.index(min(column))}: must be at least {least}")
    columns = [column for _, column, _ in ints]
    if any(arrived[i] > arrived[i + 1] for i in range(n - 1)):
        order = sorted(range(n), key=arrived.__getitem__)
        arrived = array("d", [arrived[i] for i in order])
        columns = [array("q", [column[i] for i in order]) for column in columns]
    return Trace(arrived, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], patience_s)


def drawn(
    count: int, rate_per_s: float, *, input_tokens: float, output_tokens: float, spread: float = 0.6, seed: int = 0
) -> Trace:
    """Poisson arrivals with log-normal lengths of these means; ``spread`` is one sigma of their logarithm."""
    random = Random(seed)  # noqa: S311  a simulation, no secret
    at, arrived = 0.0, array("d")
    inputs, outputs = array("q"), array("q")
    shift = spread * spread / 2
    for _ in range(count):
        at += random.expovariate(rate_per_s)
        arrived.append(at)
        inputs.append(max(1, round(input_tokens * exp(random.gauss(-shift, spread)))))
        outputs.append(max(1, round(output_tokens * exp(random.gauss(-shift, spread)))))
    return trace(arrived, inputs, outputs)


def faster(one: Trace, times: float) -> Trace:
    """The same requests arriving ``times`` as fast."""
    start = one.arrived_s[0] if len(one) else 0.0
    arrived = array("d", [start + (at - start) / times for at in one.arrived_s])
    return Trace(
        arrived, one.input_tokens, one.output_tokens, one.cached_tokens, one.prefix, one.prefix_tokens, one.priority,
        one.patience_s,
    )  # fmt: skip
