"""Was a recommended change made: what replicas tell now against what was recommended, and when it came and went. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final

from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Deployment
from planner.configure.reading import read_facts
from planner.configure.values import Configuration
from planner.experiments.values import plain
from planner.gathering import effective_texts, intended_of
from planner.recommendations import Recommendation

#: what a replica measures of itself at each start: it differs between equal replicas, and is no change of what runs
_MEASURED: Final = ("num_gpu_blocks", "num_cpu_blocks", "kv_cache_capacity_tokens")
_NAMES: Final = frozenset(one.name for one in fields(Configuration))
#: one restart is told within so long; what comes later is another change
_SAME_S: Final = 1.0


def running_text(told: Deployment) -> str:
    """What a replica runs, the same text for equal replicas whatever their names and the size of their caches."""
    kept = sorted((name, text) for name, text in told.facts.items() if name not in _MEASURED)
    return repr((told.engine, told.engine_version, told.model, kept))


def told_changes(one: Recommendation, told: Deployment, args: str = "") -> dict[str, bool]:
    """Recommended settings that a replica tells, and whether each is as recommended.

    ``args``: its command line or flags as the configuration has them, for what the engine does not report.
    """
    now = read_facts(told).told()
    if args:
        now = {**intended_of(args, told).told(), **now}
    return {name: _same(now[name], value) for name, value in one.changes.items() if name in _NAMES and name in now}


def is_made(one: Recommendation, told: Sequence[Deployment], args: Mapping[str, str]) -> int:
    """How many recommended settings every replica tells as recommended; 0 where the change is not seen to be made.

    A setting that was so already tells nothing: one at least must differ from what was reported before. A wanted number
    of replicas must be there.
    """
    wanted = one.changes.get("replicas")
    if not told or (isinstance(wanted, int) and len(told) != wanted):
        return 0
    seen = [told_changes(one, d, args.get(d.target, "")) for d in told]
    if not all(each and all(each.values()) for each in seen):
        return 0
    names = set.intersection(*(set(each) for each in seen))
    before = one.before or {}
    new = [name for name in names if name not in before or not _same(before[name], one.changes[name])]
    return len(names) if new else 0


def settings_of(one: Recommendation) -> frozenset[tuple[str, str]]:
    """The settings of a recommendation that an engine could tell, with their values."""
    return frozenset((name, plain(str(value))) for name, value in one.changes.items() if name in _NAMES)


def effective_of(told: Sequence[Deployment]) -> dict[str, str] | None:
    """What the replicas report, by setting; replicas that differ are told as both values. None where nobody tells.

    An arm of which one half runs the old value is not the arm that was meant.
    """
    each = [effective_texts(one) for one in told]
    if not each:
        return None
    names = sorted({name for one in each for name in one})
    return {name: " and ".join(sorted({one.get(name, "not told") for one in each})) for name in names}


def traffic_before_s(one: Recommendation, events: Sequence[Deployment], applied_s: float) -> float:
    """Where the traffic before a change ends: with the first replica that ran something else than the evidence saw.

    ``events``: changes of what replicas of the service run, oldest first.
    """
    ran = {d.target: running_text(d) for d in events if d.ts <= one.window[1]}
    texts = set(ran.values())
    if not texts:
        return applied_s
    after = [d.ts for d in events if one.window[1] < d.ts <= applied_s + _SAME_S and running_text(d) not in texts]
    return min([applied_s, *after])


def traffic_after_s(one: Recommendation, events: Sequence[Deployment], applied_s: float, now_s: float) -> float:
    """Where the traffic after a change ends: with the next change of what runs, else now."""
    ran = {d.target: d for d in events if d.ts <= applied_s + _SAME_S}
    made = [d for d in ran.values() if _contradicts(one, d) is False]
    texts = {running_text(d) for d in (made or ran.values())}
    if not texts:
        return now_s
    later = [d.ts for d in events if applied_s + _SAME_S < d.ts <= now_s and running_text(d) not in texts]
    return min([now_s, *later])


def ran_after(one: Recommendation, events: Sequence[Deployment], end_s: float) -> list[Deployment]:
    """What replicas told last before ``end_s``, without those that tell another value than recommended."""
    last = {d.target: d for d in events if d.ts < end_s}
    return [d for d in last.values() if not _contradicts(one, d)]


def _contradicts(one: Recommendation, told: Deployment) -> bool | None:
    """Whether a replica tells another value than recommended; None where it tells none."""
    try:
        seen = told_changes(one, told)
    except ConfigError:  # an engine without a table of flags
        return None
    return None if not seen else not all(seen.values())


def _same(a: object, b: object) -> bool:
    return a == b or plain(str(a)) == plain(str(b))
