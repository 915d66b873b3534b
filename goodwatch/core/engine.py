"""The shape of an engine table: how native names map to canonical signals. Data, not behaviour.

A signal has a list of sources in order of preference. The first whose metric is on the page with the expected
type is taken; old and new names are never added together. Versions only explain what is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Read = Literal["value", "label", "sum", "count"]
Role = Literal["engine", "router", "gateway", "worker", "accelerator"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where one signal can be read on a page.

    ``metric`` is the family as the engine spells it, counters without ``_total``. ``read`` is "value" (gauge,
    counter, or the whole histogram), "label" (the number is in ``labels``: the first that is there and numeric;
    ``product`` multiplies several), "sum"/"count" (of a native histogram, as a counter).
    ``plus``/``minus`` name families added to or taken from the value where present, ``times``/``over`` families
    that scale it and must be present, ``needs`` families without which it says nothing. All of them are matched on the
    labels that both carry.
    """

    metric: str
    type: str = "gauge"  # native type on the wire: gauge, counter, histogram
    since: str | None = None
    until: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)  # label → regular expression, matched whole
    scale: float = 1.0  # native unit → canonical unit
    read: Read = "value"
    labels: tuple[str, ...] = ()
    product: bool = False
    plus: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    part: str | None = None  # native label kept as the sample's part
    part_as: str | None = None  # canonical name of that part where the native label differs
    derived: bool = False  # computed from other series rather than read: status "derived"
    declared_only: bool = False  # claim only on a target whose engine is pinned (unprefixed names)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """Why a signal has no source on this engine, and what a person can look at instead."""

    why: str
    instead: str = ""
    flag: str = ""  # the engine flag that brings it, if one does


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine: names, labels, units and quirks over its versions."""

    name: str
    title: str
    docs: str
    prefixes: tuple[str, ...]  # native prefixes that identify it: ("vllm:",)
    signals: Mapping[str, tuple[Source, ...]]
    # A router or gateway sees the same requests as the engines behind it: one layer per signal. A worker is the
    # process around one engine, as its framework counts it.
    role: Role = "engine"
    absent: Mapping[str, Absent] = field(default_factory=dict)  # signal → reason, when no source is on the page
    names: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)  # family → (first, last version)
    versions: tuple[str, ...] = ()  # versions read, ascending
    markers: tuple[str, ...] = ()  # families always on a live page from their first version on
    model_labels: tuple[str, ...] = ("model_name",)
    sum_labels: tuple[str, ...] = ()  # ranks whose series add up (data parallel)
    rank_as: str | None = None  # canonical name of the rank, instead of the labels' own: values only, joined by "/"
    repeat_labels: tuple[str, ...] = ()  # ranks whose series repeat one value (tensor/pipeline parallel): take one
    total_labels: tuple[str, ...] = ()  # labels whose empty value is already the total of the others
    info: tuple[str, ...] = ()  # families whose labels say what runs (deployment facts)
    ignore_labels: tuple[str, ...] = ()  # labels without meaning for us (pid, instance noise)
    role_label: str | None = None  # label that names prefill / decode in a disaggregated fleet
    version_paths: tuple[tuple[str, str], ...] = ()  # (HTTP path, JSON key) that tell the version
    metrics_paths: tuple[str, ...] = ("/metrics",)
    tokens_step_at_finish: bool = False  # token counters move only when a request ends
    finished_counts_aborts: bool = False  # the finished counter and E2E histogram hold aborted requests too
    ttft_at_finish: bool = False  # TTFT is observed when the request ends, so its population is the ended requests
    ttft_streamed_only: bool = False  # requests that are not streamed leave no TTFT observation
    tpot_skips_single: bool = False  # requests with one output token leave no TPOT observation
    ttft_repeats_until: str | None = None  # last version that observes TTFT again after a preemption
    zeros_from_start: bool = False  # counters exist as zeros before their first event
    generate_handlers: str = r".*/v1/(chat/)?completions.*"  # HTTP routes that are inference requests
    hints: Mapping[str, str] = field(default_factory=dict)  # situation → sentence for a person
