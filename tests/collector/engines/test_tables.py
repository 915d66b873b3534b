"""What holds for every engine table, whatever the engine: complete, consistent, readable by a person."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import collector.engines
from collector.families import family_key
from goodwatch.core.catalogue import ACCELERATOR_SIGNALS, CATALOGUE, OWN
from goodwatch.core.engine import Engine, Source
from goodwatch.core.model import SignalKind

_MODULES = sorted(m.name for m in pkgutil.iter_modules(collector.engines.__path__) if not m.name.startswith("_"))

# Families that belong to no engine: web framework and Prometheus client libraries export them.
_LIBRARIES = {"http_requests", "process_start_time_seconds"}
# Seen on a page, in no package that was read.
_SEEN_ONLY = {"sglang:max_running_requests"}
# Our own spelling of TensorRT-LLM's JSON statistics.
_JSON = "trtllm_json:"


@pytest.fixture(params=_MODULES)
def engine(request: pytest.FixtureRequest) -> Engine:
    module = importlib.import_module(f"collector.engines.{request.param}")
    found: Engine = module.ENGINE
    assert found.name == request.param, "ENGINE.name must be the module's name: engines are found by it"
    return found


def sources(engine: Engine) -> Iterator[tuple[str, Source]]:
    for signal, listed in engine.signals.items():
        for source in listed:
            yield signal, source


def key(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def operands(source: Source) -> tuple[str, ...]:
    return tuple(o.partition("{")[0] for o in (*source.plus, *source.minus, *source.times, *source.over))


def test_every_signal_of_the_catalogue_has_a_source_or_a_reason(engine: Engine) -> None:
    missing = set(CATALOGUE) - OWN - ACCELERATOR_SIGNALS - set(engine.signals) - set(engine.absent)
    assert not missing


def test_only_signals_of_the_catalogue_are_mapped(engine: Engine) -> None:
    assert set(engine.signals) <= set(CATALOGUE) - OWN - ACCELERATOR_SIGNALS
    assert set(engine.absent) <= set(CATALOGUE) - OWN - ACCELERATOR_SIGNALS


def test_a_signal_that_some_versions_lack_says_why_it_is_missing(engine: Engine) -> None:
    sometimes = {
        signal
        for signal, listed in engine.signals.items()
        if all(s.since or s.until or s.declared_only or s.where for s in listed)
    }
    assert sometimes <= set(engine.absent)


def test_no_signal_has_an_empty_list_of_sources(engine: Engine) -> None:
    assert all(engine.signals.values())


def test_native_types_fit_the_kind_of_the_signal(engine: Engine) -> None:
    for signal, source in sources(engine):
        kind = CATALOGUE[signal].kind
        assert source.type in ("gauge", "counter", "histogram"), signal
        if source.read in ("sum", "count"):
            assert (source.type, kind) == ("histogram", SignalKind.COUNTER), signal
        else:
            assert (source.type == "histogram") == (kind is SignalKind.HISTOGRAM), signal
        if kind is SignalKind.GAUGE:
            assert source.type == "gauge", f"{signal}: a counter is no gauge"


def test_labels_are_given_where_labels_are_read(engine: Engine) -> None:
    for signal, source in sources(engine):
        assert (source.read == "label") == bool(source.labels), signal
        assert not source.product or len(source.labels) > 1, signal


def test_what_is_computed_from_other_series_is_marked_as_derived(engine: Engine) -> None:
    for signal, source in sources(engine):
        if source.times or source.over or source.minus or source.product:
            assert source.derived, signal


def test_every_family_that_is_read_is_in_the_inventory(engine: Engine) -> None:
    if not engine.versions:  # no version of its names is known, so there is nothing to date a page by
        assert not engine.names
        return
    read = {family for _, s in sources(engine) for family in (s.metric, *operands(s)) if not family.startswith(_JSON)}
    assert read - set(engine.names) <= _LIBRARIES | _SEEN_ONLY
    assert set(engine.info) <= set(engine.names)


def test_sources_lie_within_the_life_of_their_family(engine: Engine) -> None:
    for signal, source in sources(engine):
        if source.metric not in engine.names:
            continue
        first, last = engine.names[source.metric]
        assert source.since is None or key(source.since) >= key(first), signal
        assert last is None or (source.until is not None and key(source.until) <= key(last)), signal


def test_families_are_listed_once_whatever_their_spelling(engine: Engine) -> None:
    keys = [family_key(name) for name in engine.names]
    assert len(keys) == len(set(keys))
    for _, source in sources(engine):
        assert source.type != "counter" or not source.metric.endswith("_total")


def test_versions_ascend_and_every_life_ends_after_it_began(engine: Engine) -> None:
    versions = [key(v) for v in engine.versions]
    assert versions == sorted(set(versions))
    lives = [*engine.names.values(), *((s.since, s.until) for _, s in sources(engine))]
    assert all(not first or not last or key(first) <= key(last) for first, last in lives)


def test_first_and_last_versions_of_families_were_read(engine: Engine) -> None:
    known = {v for life in engine.names.values() for v in life if v}
    assert known <= set(engine.versions)


def test_markers_are_families_that_never_went_away(engine: Engine) -> None:
    births = [engine.names[marker] for marker in engine.markers]
    assert all(last is None for _, last in births)
    assert [key(first) for first, _ in births] == sorted(key(first) for first, _ in births)


def test_patterns_compile_here_and_in_re2(engine: Engine) -> None:
    patterns = [engine.generate_handlers, *(p for _, s in sources(engine) for p in s.where.values())]
    for pattern in patterns:
        assert re.compile(pattern)
        # RE2 (PromQL) has neither look-around nor back-references.
        assert not re.search(r"\(\?[=!<]|\\[1-9]", pattern), pattern


def test_a_label_has_one_role(engine: Engine) -> None:
    roles = (engine.model_labels, engine.sum_labels, engine.repeat_labels, engine.total_labels, engine.ignore_labels)
    labels = [label for role in roles for label in role]
    assert len(labels) == len(set(labels))


def test_sentences_for_people_say_something(engine: Engine) -> None:
    assert engine.title
    assert engine.docs
    assert engine.prefixes
    assert "off" in engine.hints
    assert all(hint.endswith(".") and len(hint) <= 120 for hint in engine.hints.values())
    assert all(absent.why for absent in engine.absent.values())


def test_no_two_engines_claim_one_prefix(engine: Engine) -> None:
    # A longer prefix than another's is fine: the longest owns a family (vllm_router_ is not vLLM's).
    mine = set(map(family_key, engine.prefixes))
    for other in (importlib.import_module(f"collector.engines.{m}").ENGINE for m in _MODULES if m != engine.name):
        assert not mine & set(map(family_key, other.prefixes)), other.name
