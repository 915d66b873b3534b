"""A first engine table from one metrics page: signals proposed by names, types, units, bounds and labels. Pure.

Every proposal is a guess by a table of words, never more: two engines use one name for two things (vLLM's old
time_per_output_token is a gap between tokens, LMDeploy's a time per request). A family that fits nothing well is
listed, not placed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from collector.families import Families, Family, family_key
from goodwatch.core.engine import Read
from goodwatch.core.histogram import INF

#: Words of one meaning; what is not here stands for itself.
_SAME: Final[dict[str, str]] = {
    word: meaning
    for meaning, words in {
        "request": "requests req reqs",
        "token": "tokens toks",
        "prompt": "prompts input",
        "output": "generation generated predicted completion outputs gen",
        "running": "processing executing",
        "waiting": "queue queued pending deferred wait",
        "failed": "failure failures error errors fail",
        "finished": "success succeeded successful completed finish",
        "aborted": "abort aborts cancelled canceled cancel cancellation cancellations",
        "rejected": "rejection rejections reject refused shed",
        "preempted": "preemption preemptions preempt evicted eviction evictions retracted retractions",
        "time": "duration latency",
        "e2e": "endtoend",
        "length": "len lengths",
        "used": "usage utilization utilisation",
        "ratio": "perc percent percentage rate",
        "draft": "drafts drafted",
        "hit": "hits",
        "query": "queries lookups lookup",
        "block": "blocks page pages",
    }.items()
    for word in words.split()
}
_PHRASES: Final = (("ttft", "time first token"), ("tpot", "time per output token"), ("itl", "inter token time"),
                   ("iter token", "inter token"), ("end to end", "e2e"))  # fmt: skip
#: Exported by web frameworks and Prometheus clients on anybody's page.
_LIBRARY: Final = re.compile(r"(http|process|python|go|promhttp|scrape|up)(_|$)")
_UNITS: Final = (
    (re.compile(r"(_ms|_milliseconds|_millis)$"), 1e-3),
    (re.compile(r"(_us|_microseconds|_micros)$"), 1e-6),
)
_MODEL_LABELS: Final = ("model_name", "model", "model_id")
_SUM_LABELS: Final = ("engine", "dp_rank", "dp")
_UNTYPED: Final = ("unknown", "untyped", "")
_REPEAT_LABELS: Final = ("tp_rank", "pp_rank", "ep_rank", "moe_ep_rank", "cp_rank")
_REASON_LABELS: Final = ("finished_reason", "finish_reason", "reason", "stop_reason")
#: Of fewer families the shared words may be part of what they mean.
_FEW: Final = 3
#: A gap between tokens is seen many times a request, a time per output token once.
_MANY_A_REQUEST: Final = 1.5


@dataclass(frozen=True, slots=True)
class Rule:
    """Words that make a family a signal. ``words``: alternatives, each of words that must all be there."""

    signal: str
    kinds: str  # wire types that may carry it
    words: tuple[str, ...]
    never: frozenset[str] = frozenset()


def _rule(signal: str, kinds: str, words: str, never: str = "") -> Rule:
    return Rule(signal, kinds, tuple(words.split("|")), frozenset(never.split()))


#: Never part of a request count or a latency, whatever else the name says.
_ASIDE: Final = "lora grammar encoder external mm kv transfer offload stage tokenizer http"
_SIDE: Final = f"{_ASIDE} batch worker"
_RULES: Final = (
    _rule("requests_running", "gauge", "request running|batch current size", f"waiting swapped max time {_ASIDE}"),
    _rule("requests_waiting", "gauge", "request waiting|waiting size|waiting depth", f"by reason running time prefill decode {_SIDE}"),
    _rule("requests_waiting_by_reason", "gauge", "request waiting by reason"),
    _rule("requests_swapped", "gauge", "request swapped"),
    _rule("requests_paused", "gauge", "request paused"),
    _rule("requests_finished_total", "counter gauge", "request finished", f"time failed unfinished {_SIDE}"),
    _rule("requests_failed_total", "counter", "request failed", f"time transfer {_SIDE}"),
    _rule("requests_aborted_total", "counter", "request aborted", f"time {_SIDE}"),
    _rule("requests_rejected_total", "counter", "request rejected|admission rejected", f"time {_SIDE}"),
    _rule("ttft_seconds", "histogram", "time first token", _SIDE),
    _rule("tpot_seconds", "histogram", "time per output token", f"mean {_SIDE}"),
    _rule("itl_seconds", "histogram", "inter token time", _SIDE),
    _rule("e2e_seconds", "histogram", "request time|request e2e", f"waiting prefill decode inference output first per validation {_SIDE}"),
    _rule("queue_seconds", "histogram", "waiting time", f"prefill decode grammar {_SIDE}"),
    _rule("prefill_seconds", "histogram", "prefill time", f"waiting computed {_SIDE}"),
    _rule("decode_seconds", "histogram", "decode time", f"waiting spec {_SIDE}"),
    _rule("inference_seconds", "histogram", "inference time", f"per {_SIDE}"),
    _rule("input_tokens_total", "counter", "prompt token", "cached hit by source seconds max recomputed output spec external"),
    _rule("output_tokens_total", "counter", "output token", "prompt draft accepted spec cached seconds max by"),
    _rule("cached_input_tokens_total", "counter", "cached token", "by source output seconds external"),
    _rule("realtime_tokens_total", "counter", "realtime token", "gpu dp cooperation"),
    _rule("input_length_tokens", "histogram", "prompt token|prompt length", f"cached uncached time seconds iteration computed {_SIDE}"),
    _rule("output_length_tokens", "histogram", "output token|output length", f"time seconds per first max iteration inter {_SIDE}"),
    _rule("kv_cache_used_ratio", "gauge", "kv cache used|cache used ratio|token used", "cpu hit prefix lora host swa mamba tokens bytes gb full pending memory"),
    _rule("kv_cache_capacity_tokens", "gauge", "max total num token|kv cache capacity token", "swa used"),
    _rule("kv_block_size_tokens", "gauge", "block size", "batch"),
    _rule("kv_blocks", "gauge", "num block|total kv block|num gpu block", "used free cpu"),
    _rule("prefix_cache_queries_total", "counter", "prefix cache query", f"cpu {_SIDE}"),
    _rule("prefix_cache_hits_total", "counter", "prefix cache hit", f"ratio cpu {_SIDE}"),
    _rule("prefix_cache_hit_ratio", "gauge", "cache hit ratio", f"{_SIDE}"),
    _rule("preemptions_total", "counter", "preempted", "token seconds time encoder duration"),
    _rule("spec_drafts_total", "counter", "num draft", "token accepted pos"),
    _rule("spec_draft_tokens_total", "counter", "draft token", "accepted pos per"),
    _rule("spec_accepted_tokens_total", "counter", "accepted token", "per pos"),
    _rule("spec_accept_length", "gauge", "accept length", "block"),
    _rule("max_model_len_tokens", "gauge", "context length|max model length"),
    _rule("max_running_requests", "gauge", "max running request|max num seqs", "under slo"),
)  # fmt: skip
#: A total may stand in a length's sum, when no counter has it.
_SUMS: Final = {"input_tokens_total": "input_length_tokens", "output_tokens_total": "output_length_tokens"}


@dataclass(frozen=True, slots=True)
class Guess:
    """One family taken for one signal, and by what."""

    signal: str
    family: str  # as the table spells it: counters without _total
    kind: str
    why: str
    read: Read = "value"
    scale: float = 1.0
    part: str = ""
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Left:
    """A family that no rule places, with what a person needs to place it."""

    family: str
    kind: str
    labels: tuple[str, ...]
    about: str  # the page's HELP, or why a rule did not take it


@dataclass(frozen=True, slots=True)
class Draft:
    """What one page suggests."""

    prefix: str
    guesses: tuple[Guess, ...]
    left: tuple[Left, ...]
    model_labels: tuple[str, ...]
    sum_labels: tuple[str, ...]
    repeat_labels: tuple[str, ...]


def draft(families: Families, about: Mapping[str, str]) -> Draft:
    """Proposals for every family of a page.

    Parameters
    ----------
    families
        The page, gathered.
    about
        HELP by family name as declared.
    """
    prefix = prefix_of(families)
    own = [f for f in _typed(families) if prefix and f.name.startswith(prefix)]
    best: dict[str, tuple[int, str, Family, str]] = {}  # extra words, name, family, words that made it
    reasons: dict[str, str] = {}
    for family in own:
        for rule in _RULES:
            fit = _fit(rule, words_of(family.name.removeprefix(prefix)), family.type)
            if fit is None:
                continue
            signal = _by_count(rule.signal, family, own, prefix)
            if signal is None:
                reasons[family.name] = "a time per output token, or a gap between tokens? no observation yet to tell"
            elif signal not in best or (fit[0], family.name) < best[signal][:2]:
                best[signal] = (fit[0], family.name, family, fit[1])
    guesses = [_guess(s, family, words, about.get(name, "")) for s, (_, name, family, words) in best.items()]
    taken = {name for _, name, _, _ in best.values()}
    guesses += _beside(families, {g.signal for g in guesses})
    guesses += [
        Guess(total, _spelt(best[length][2]), "histogram", "the sum of the lengths, since no counter has it", "sum")
        for total, length in _SUMS.items()
        if total not in best and length in best
    ]
    left = [_left(f, reasons.get(f.name) or about.get(f.name, "")) for f in own if f.name not in taken]
    labels = {label for f in own for s in f.series for label in s.labels}
    return Draft(
        prefix, tuple(guesses), tuple(sorted(left, key=lambda one: one.family)),
        *(tuple(n for n in known if n in labels) for known in (_MODEL_LABELS, _SUM_LABELS, _REPEAT_LABELS)),
    )  # fmt: skip


def _typed(families: Families) -> list[Family]:
    """Families with series; those that lost their type get it from the declaration of another spelling."""
    declared = {family_key(f.name): f for f in families if f.type not in _UNTYPED}
    whole: dict[str, Family] = {}
    for family in families:
        known = declared.get(family_key(family.name)) if family.type in _UNTYPED else None
        if family.series:
            whole[family.name] = family if known is None else Family(known.name, known.type, family.series)
    return list(whole.values())


def prefix_of(families: Families) -> str:
    """What most families of a page begin with: up to a colon, else the words that all of them share; "" for none.

    Examples
    --------
    >>> from collector.exposition import parse
    >>> prefix_of(Families(parse("llamacpp:requests_deferred 1")))
    'llamacpp:'
    """
    names = [f.name for f in families if not _LIBRARY.match(f.name)]
    starts = Counter(n.partition(":")[0] + ":" if ":" in n else n.partition("_")[0] + "_" for n in names)
    if not starts:
        return ""
    start = starts.most_common(1)[0][0]
    members = [n.split("_")[:-1] for n in names if n.startswith(start)]
    if ":" in start or len(members) < _FEW:
        return start
    shared = takewhile(lambda words: len(set(words)) == 1, zip(*members, strict=False))
    return "".join(f"{words[0]}_" for words in shared)


def words_of(name: str) -> frozenset[str]:
    """The words of a family name, those of one meaning made one.

    Examples
    --------
    >>> sorted(words_of("num_queue_reqs"))
    ['num', 'request', 'waiting']
    """
    words = (w for w in re.split(r"[_:.]+", name.lower()) if w not in ("total", "seconds", "histogram"))
    text = " ".join(_SAME.get(w, w) for w in words)
    for short, long in _PHRASES:
        text = re.sub(rf"\b{short}\b", long, text)
    if re.search(r"_seconds(_|$)", name) and "time" not in text.split():
        text += " seconds"  # seconds that no word calls a time: a sum of them, or a rate of something else
    return frozenset(text.split())


def _fit(rule: Rule, words: frozenset[str], kind: str) -> tuple[int, str] | None:
    """How many words a family has beyond those of the rule, and those of the rule; None when it does not fit."""
    if kind not in rule.kinds.split() or words & rule.never:
        return None
    fits = [(len(words - {*w.split()}), w) for w in rule.words if words.issuperset(w.split())]
    return min(fits, default=None)


def _by_count(signal: str, family: Family, own: Sequence[Family], prefix: str) -> str | None:
    """A time per output token by its number of observations; None when nothing was observed."""
    if signal != "tpot_seconds" or "request" in words_of(family.name.removeprefix(prefix)):
        return signal
    ends = [_seen(f) for f in own if _fit(_E2E, words_of(f.name.removeprefix(prefix)), f.type) is not None]
    if not _seen(family) or not max(ends, default=0.0):
        return None
    return "itl_seconds" if _seen(family) > _MANY_A_REQUEST * max(ends) else signal


_E2E: Final = next(rule for rule in _RULES if rule.signal == "e2e_seconds")


def _seen(family: Family) -> float:
    return sum(s.histogram.total for s in family.series if s.histogram is not None)


def _guess(signal: str, family: Family, words: str, about: str) -> Guess:
    labels = {label for s in family.series for label in s.labels}
    part = next((n for n in _REASON_LABELS if n in labels), "") if signal.startswith("requests_finished") else ""
    if signal == "requests_waiting_by_reason":
        part = "reason" if "reason" in labels else ""
    scale, unit = _scale(signal, family)
    why = f"a {family.type} whose name says {words}{unit}" + (f". {' '.join(about.split())}" if about else "")
    return Guess(signal, _spelt(family), family.type, why, scale=scale, part=part)


def _scale(signal: str, family: Family) -> tuple[float, str]:
    """Native to canonical unit, by the name's ending, else by the values."""
    if signal.endswith("_seconds"):
        for ending, scale in _UNITS:
            if ending.search(family.name):
                return scale, ", its unit by the ending"
        bounds = [b for s in family.series if s.histogram for b in s.histogram.le if b != INF]
        if "second" not in family.name and bounds and min(b for b in bounds if b > 0) >= 1 and max(bounds) >= 1_000:
            return 1e-3, ", milliseconds by its bounds"
    if signal.endswith("_ratio") and any(s.value > 1 for s in family.series):
        return 1e-2, ", per cent by its values"
    return 1.0, ""


def _beside(families: Families, placed: Iterable[str]) -> list[Guess]:
    """What is in labels of an info family, and what libraries export under names of their own."""
    found: list[Guess] = []
    for family in families:
        labels = {label for s in family.series for label in s.labels}
        if family.name.endswith("_info") and family.type == "gauge" and "block_size" in labels:
            found.append(
                Guess("kv_block_size_tokens", family.name, "gauge", "by a label's name", "label", part="block_size")
            )
    if (http := families.get("http_requests", "counter")) is not None and any(
        "handler" in s.labels for s in http.series
    ):
        handlers = {"handler": r".*/v1/(chat/)?completions"}
        found.append(
            Guess("http_requests_total", "http_requests", "counter", "by its name", part="status", where=handlers)
        )
    if families.get("process_start_time_seconds", "gauge") is not None:
        found.append(Guess("process_start_seconds", "process_start_time_seconds", "gauge", "by its name"))
    return [g for g in found if g.signal not in set(placed)]


def _left(family: Family, about: str) -> Left:
    labels = tuple(sorted({label for s in family.series for label in s.labels}))
    return Left(_spelt(family), family.type, labels, " ".join(about.split()))


def _spelt(family: Family) -> str:
    return family.name.removesuffix("_total") if family.type == "counter" else family.name
