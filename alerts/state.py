"""Alerts over time: pending, firing, held, resolved; to a dict and back, so that a restart changes nothing. Pure.

As in Prometheus a condition has to hold for ``for``, and a firing alert is held for ``keep_firing_for`` after its
condition went away. A rule that cannot be judged leaves its alerts as they are: being blind is no recovery. Time in
which nothing was evaluated counts as neither: a pending alert begins anew after it, a held one is held from then on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from alerts.evaluate import Evaluation, Met, rule_key
from alerts.values import FiringAlert, fingerprint

Phase = Literal["pending", "firing", "resolved"]

#: two evaluations further apart than this have a gap between them: Prometheus' own look-back
GAP_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Held:
    """One alert that is pending, firing, or just resolved; ``let_go_s`` is since when its condition is away."""

    name: str
    fingerprint: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    phase: Phase
    since_s: float  # when its condition began to hold; once it fires, when it began to fire
    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    let_go_s: float | None = None
    ended_s: float | None = None
    value: float | None = None

    @property
    def key(self) -> str:
        """Its rule."""
        return rule_key(self.name, self.labels)

    def alert(self, generator_url: str = "") -> FiringAlert:
        """As it is told."""
        return FiringAlert(
            self.name, self.labels, self.annotations, self.since_s, self.ended_s, self.fingerprint,
            self.labels.get("severity", ""), generator_url,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AlertState:
    """All alerts that are pending or firing, by fingerprint; ``at_s`` is the last evaluation, None before the first."""

    held: Mapping[str, Held] = field(default_factory=dict)
    at_s: float | None = None

    @property
    def firing(self) -> tuple[Held, ...]:
        """Those that fire, oldest first."""
        found = [one for one in self.held.values() if one.phase == "firing"]
        return tuple(sorted(found, key=lambda one: (one.since_s, one.name, one.fingerprint)))


@dataclass(frozen=True, slots=True)
class Advanced:
    """The next state, and what changed: alerts that began to fire, and those that are over (``ended_s`` is set)."""

    state: AlertState
    began: tuple[Held, ...] = ()
    ended: tuple[Held, ...] = ()

    @property
    def changed(self) -> tuple[Held, ...]:
        """What has to be kept: began, ended."""
        return (*self.began, *self.ended)


def advance(state: AlertState, found: Evaluation, now_s: float) -> Advanced:
    """Take one evaluation. Alerts of rules that are gone from the configuration end like any other."""
    gap = state.at_s is None or now_s - state.at_s > GAP_S or now_s < state.at_s
    met = {fingerprint(one.rule.name, one.labels): one for one in found.met}
    held: dict[str, Held] = {}
    began: list[Held] = []
    ended: list[Held] = []
    for print_, one in met.items():
        before = state.held.get(print_)
        after = _holding(before, one, print_, now_s, gap=gap)
        held[print_] = after
        if after.phase == "firing" and (before is None or before.phase == "pending"):
            began.append(after)
    for print_, before in state.held.items():
        if print_ in met:
            continue
        kept = before if before.key in found.blind else _away(before, now_s, gap=gap)
        if kept is not None and kept.phase == "resolved":
            ended.append(kept)
        elif kept is not None:
            held[print_] = kept
    return Advanced(AlertState(held, now_s), tuple(began), tuple(ended))


def _holding(before: Held | None, met: Met, print_: str, now_s: float, *, gap: bool) -> Held:
    """An alert whose condition holds."""
    fresh = Held(
        met.rule.name, print_, dict(met.labels), dict(met.annotations), "pending", now_s, met.rule.for_s,
        met.rule.keep_firing_for_s, value=met.value,
    )  # fmt: skip
    if before is not None and before.phase == "firing":
        return replace(fresh, phase="firing", since_s=before.since_s)
    since_s = now_s if before is None or gap else before.since_s
    if now_s - since_s >= met.rule.for_s:
        return replace(fresh, phase="firing", since_s=now_s)
    return replace(fresh, since_s=since_s)


def _away(before: Held, now_s: float, *, gap: bool) -> Held | None:
    """An alert whose condition does not hold: None when nobody was told of it."""
    if before.phase != "firing":
        return None
    let_go_s = now_s if before.let_go_s is None or gap else before.let_go_s
    if now_s - let_go_s >= before.keep_firing_for_s:
        return replace(before, phase="resolved", let_go_s=let_go_s, ended_s=now_s)
    return replace(before, let_go_s=let_go_s)


def told(advanced: Advanced, generator_url: str = "") -> tuple[FiringAlert, ...]:
    """What a notifier is told: all that fires, and what just ended."""
    return tuple(one.alert(generator_url) for one in (*advanced.state.firing, *advanced.ended))


# --- to a record and back ---------------------------------------------------------------------------------------------


def record(held: Held) -> dict[str, object]:
    """One alert as JSON values."""
    return {
        "name": held.name, "labels": dict(held.labels), "annotations": dict(held.annotations), "phase": held.phase,
        "since_s": held.since_s, "for_s": held.for_s, "keep_firing_for_s": held.keep_firing_for_s,
        "ended_s": held.ended_s, "value": held.value,
    }  # fmt: skip


def restored(bodies: Iterable[Mapping[str, object]]) -> AlertState:
    """The alerts that fired when they were recorded; a body that is not one is passed over.

    What goodwatch did while it was away is not known: the state has no time, so that the next evaluation finds a gap.
    """
    found = [one for body in bodies if (one := _held(body)) is not None and one.phase == "firing"]
    return AlertState({one.fingerprint: one for one in found})


def _held(body: Mapping[str, object]) -> Held | None:
    name, labels, annotations = body.get("name"), body.get("labels"), body.get("annotations")
    phase, since_s = body.get("phase"), _number(body.get("since_s"))
    if not isinstance(name, str) or not isinstance(labels, Mapping) or since_s is None:
        return None
    if phase not in ("firing", "resolved"):
        return None
    texts = annotations if isinstance(annotations, Mapping) else {}
    plain = {str(k): str(v) for k, v in labels.items()}
    return Held(
        name, fingerprint(name, plain), plain, {str(k): str(v) for k, v in texts.items()},
        "firing" if phase == "firing" else "resolved", since_s, _number(body.get("for_s")) or 0.0,
        _number(body.get("keep_firing_for_s")) or 0.0, ended_s=_number(body.get("ended_s")),
        value=_number(body.get("value")),
    )  # fmt: skip


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def worst_first(alerts: Sequence[FiringAlert]) -> tuple[FiringAlert, ...]:
    """Alerts as a page lists them: those that fire before those that are over, critical ones first, then the newest."""
    rank = {"critical": 0, "warning": 1}
    return tuple(sorted(alerts, key=lambda a: (a.resolved, rank.get(a.severity, 2), -a.starts_at_s, a.fingerprint)))
