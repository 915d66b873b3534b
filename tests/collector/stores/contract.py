"""What every store must do, as one test class; a subclass gives the ``store`` fixture."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from collector.stores._terms import Retention, StoreHealth
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Deployment, Histogram, Sample, Scrape
from goodwatch.core.ports import SampleStore
from goodwatch.signals.frames import DERIVED, MINUTES, SAMPLES, SCRAPES, samples_frame, scrapes_frame

RETENTION = Retention(samples_s=100, minutes_s=1000, derived_s=500)
INF = math.inf


class Store(SampleStore, Protocol):
    def health(self) -> StoreHealth: ...


class FixedClock:
    def now_s(self) -> float:
        return 1234.5

    def monotonic_s(self) -> float:
        return 1.0


def sample(ts: float = 10.0, target: str = "a", signal: str = "running_count", **more: Any) -> Sample:
    value = None if "histogram" in more else more.pop("value", 1.0)
    return Sample(
        ts=ts, target=target, service=more.pop("service", "chat"), model="llama", engine="vllm",
        engine_version="0.11.0", rank=more.pop("rank", ""), signal=signal, value=value, **more,
    )  # fmt: skip


def scrape(ts: float = 10.0, target: str = "a", service: str = "chat", samples: tuple[Sample, ...] = ()) -> Scrape:
    return Scrape(
        ts=ts, target=target, service=service, up=True, duration_s=0.25, samples=samples,
        body_bytes=4096, page_samples=300,
    )  # fmt: skip


def failed(ts: float = 10.0, target: str = "a") -> Scrape:
    return Scrape(ts, target, "chat", up=False, duration_s=5.0, error="no answer in 5 s", reason="timeout")


def full(ts: float = 10.0, target: str = "a", service: str = "chat") -> Scrape:
    histogram = Histogram((0.1, 1.0, INF), (1.0, 3.0, 4.0), 2.5)
    samples = (
        sample(ts, target, service=service, rank="1"),
        sample(ts, target, "ttft_seconds", service=service, histogram=histogram),
        sample(ts, target, "e2e_seconds", service=service, histogram=replace(histogram, sum=None)),
        sample(ts, target, "finished_total", service=service, part="finished_reason=stop", value=12345678901.0),
    )
    return scrape(ts, target, service, samples)


def minute(at: float, **values: Any) -> dict[str, Any]:
    keys = {"target": "a", "service": "chat", "model": "llama", "engine": "vllm", "signal": "finished_total"}
    return {"minute_s": at, **keys, "part": "", "kind": "counter", **values}


def derived(at: float, **values: Any) -> dict[str, Any]:
    keys = {"window_s": 300.0, "service": "chat", "target": "", "model": "", "name": "goodput_per_s"}
    return {"ts": at, **keys, "basis": "bounded", "note": "", **values}


def frame(rows: list[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def deployment(ts: float = 10.0, target: str = "a", **more: Any) -> Deployment:
    facts = more.pop("facts", {"kv_block_size": "32", "dtype": "bf16"})
    return Deployment(ts, target, more.pop("service", "chat"), "vllm", "0.11.0", "llama", facts, **more)


def times(found: pl.DataFrame) -> list[float]:
    return found.to_series(0).to_list()


class StoreContract:
    """Subclasses give ``store``: empty, with ``RETENTION`` and a ``FixedClock``."""

    @pytest.fixture
    def store(self) -> Store | Iterator[Store]:
        raise NotImplementedError

    # samples and scrapes

    def test_an_empty_store_answers_with_empty_frames(self, store: Store) -> None:
        assert_frame_equal(store.samples(0, INF), pl.DataFrame(schema=SAMPLES))
        assert_frame_equal(store.scrapes(0, INF), pl.DataFrame(schema=SCRAPES))
        assert_frame_equal(store.minutes(0, INF), pl.DataFrame(schema=MINUTES))
        assert_frame_equal(store.derived(0, INF), pl.DataFrame(schema=DERIVED))
        assert store.deployments(0, INF) == []

    def test_what_was_appended_is_read_back(self, store: Store) -> None:
        scrapes = [full(10.0, "a"), full(10.5, "b"), failed(11.0)]
        store.append(scrapes)
        wanted = samples_frame(s for x in scrapes for s in x.samples).sort("ts", "target", "signal", "part", "rank")
        assert_frame_equal(store.samples(0, 100), wanted)
        assert_frame_equal(store.scrapes(0, 100), scrapes_frame(scrapes))

    def test_nothing_to_append_is_fine(self, store: Store) -> None:
        store.append([])
        assert store.scrapes(0, INF).is_empty()

    @pytest.mark.parametrize("value", [None, math.nan, INF, -INF, 0.0, -0.0, 5e-324, 2.0**53 + 2])
    def test_a_value_comes_back_bit_for_bit(self, store: Store, value: float | None) -> None:
        store.append([scrape(samples=(sample(value=value),))])
        found = store.samples(0, 100)["value"].item()
        assert found is value is None or repr(found) == repr(value)

    def test_an_odd_histogram_comes_back_as_it_was(self, store: Store) -> None:
        odd = [
            Histogram((), (), None),
            Histogram((INF,), (0.0,), math.nan),
            Histogram((0.1, INF), (math.nan, INF), INF),
            Histogram((0.1, INF), (0.5, 1.5), -1.0),
        ]
        samples = tuple(sample(signal=f"s{i}", histogram=histogram) for i, histogram in enumerate(odd))
        store.append([scrape(samples=samples)])
        assert_frame_equal(store.samples(0, 100), samples_frame(samples))

    def test_text_of_any_kind_comes_back(self, store: Store) -> None:
        samples = tuple(sample(signal="s", part=part) for part in ["", "a'b\"c", "路由=é", "line\nbreak", "𝔘" * 300])
        store.append([scrape(samples=samples)])
        assert sorted(store.samples(0, 100)["part"]) == sorted(s.part for s in samples)

    def test_an_interval_holds_its_start_and_not_its_end(self, store: Store) -> None:
        store.append([full(ts) for ts in (10.0, 20.0, 30.0)])
        assert times(store.scrapes(10.0, 30.0)) == [10.0, 20.0]
        assert set(times(store.samples(10.0, 30.0))) == {10.0, 20.0}
        assert store.samples(20.0, 20.0).is_empty()

    def test_samples_are_sorted_by_time_however_they_came(self, store: Store) -> None:
        store.append([full(30.0), full(10.0)])
        store.append([full(20.0)])
        assert times(store.samples(0, 100)) == sorted([10.0, 20.0, 30.0] * 4)
        assert times(store.scrapes(0, 100)) == [10.0, 20.0, 30.0]

    def test_samples_are_chosen_by_service_target_and_signal(self, store: Store) -> None:
        store.append([full(10, "a", "chat"), full(10, "b", "chat"), full(10, "c", "code")])
        assert set(store.samples(0, 100, service="chat")["target"]) == {"a", "b"}
        assert set(store.samples(0, 100, target="b")["target"]) == {"b"}
        assert store.samples(0, 100, service="code", target="a").is_empty()
        assert set(store.samples(0, 100, signals=["ttft_seconds", "none"])["signal"]) == {"ttft_seconds"}
        assert store.samples(0, 100, signals=()).is_empty()
        assert set(store.scrapes(0, 100, service="chat")["target"]) == {"a", "b"}
        assert set(store.scrapes(0, 100, target="c")["target"]) == {"c"}

    @pytest.mark.parametrize("bad", [math.nan, INF, -INF])
    def test_a_time_that_is_no_number_is_refused_and_nothing_is_kept(self, store: Store, bad: float) -> None:
        with pytest.raises(StoreError, match="Unix seconds"):
            store.append([full(10.0), scrape(20.0, samples=(sample(bad),))])
        with pytest.raises(StoreError, match="Unix seconds"):
            store.append([scrape(bad)])
        assert store.scrapes(-INF, INF).is_empty()

    # minutes and derived numbers

    def test_minutes_are_read_back(self, store: Store) -> None:
        rows = [
            minute(60, increase=5.0),
            minute(60, signal="running_count", kind="gauge", mean=1.5, min=0.0, max=3.0, last=math.nan),
            minute(60, signal="ttft_seconds", kind="histogram", increase=2.0, sum=0.5, le=[0.1, INF], count=[1.0, 2.0]),
            minute(120, increase=None),
        ]
        store.append_minutes(frame(rows, MINUTES))
        assert_frame_equal(store.minutes(60, 121), frame(rows, MINUTES))
        assert times(store.minutes(60, 120)) == [60.0] * 3

    def test_the_same_minute_of_the_same_series_replaces(self, store: Store) -> None:
        store.append_minutes(frame([minute(60, increase=5.0), minute(120, increase=6.0)], MINUTES))
        store.append_minutes(frame([minute(60, increase=7.0), minute(60, target="b", increase=1.0)], MINUTES))
        found = store.minutes(0, 1000)
        assert found.select("minute_s", "target", "increase").rows() == [(60, "a", 7), (60, "b", 1), (120, "a", 6)]

    def test_of_two_rows_with_one_key_in_one_frame_the_last_is_kept(self, store: Store) -> None:
        store.append_minutes(frame([minute(60, increase=5.0), minute(60, increase=6.0)], MINUTES))
        store.append_derived(frame([derived(60, value=5.0), derived(60, value=6.0)], DERIVED))
        assert store.minutes(0, 100)["increase"].to_list() == [6.0]
        assert store.derived(0, 100)["value"].to_list() == [6.0]

    def test_minutes_are_chosen_by_service_target_and_signal(self, store: Store) -> None:
        rows = [minute(60), minute(60, target="b", service="code"), minute(60, signal="x")]
        store.append_minutes(frame(rows, MINUTES))
        assert store.minutes(0, 100, service="code")["target"].to_list() == ["b"]
        assert store.minutes(0, 100, target="a", signals=["x"])["signal"].to_list() == ["x"]
        assert store.minutes(0, 100, signals=[]).is_empty()

    def test_derived_numbers_are_read_back(self, store: Store) -> None:
        rows = [
            derived(300, low=1.0, high=None),
            derived(300, name="ttft", value=0.25, basis="counted"),
            derived(360, note="no traffic"),
        ]
        store.append_derived(frame(rows, DERIVED))
        assert_frame_equal(store.derived(300, 361), frame(rows, DERIVED))
        assert times(store.derived(300, 360)) == [300.0, 300.0]
        assert store.derived(0, 1000, name="ttft")["value"].to_list() == [0.25]
        assert store.derived(0, 1000, service="code").is_empty()

    def test_the_same_derived_number_replaces_and_another_window_does_not(self, store: Store) -> None:
        store.append_derived(frame([derived(300, value=1.0), derived(300, window_s=3600.0, value=2.0)], DERIVED))
        store.append_derived(frame([derived(300, value=None, note="no traffic")], DERIVED))
        found = store.derived(0, 1000).select("window_s", "value", "note").rows()
        assert found == [(300.0, None, "no traffic"), (3600.0, 2.0, "")]

    def test_a_null_in_a_key_is_the_same_key_again(self, store: Store) -> None:
        for value in (1.0, 2.0):
            store.append_minutes(frame([minute(60, model=None, increase=value)], MINUTES))
            store.append_derived(frame([derived(60, model=None, value=value)], DERIVED))
        assert store.minutes(0, 100).select("model", "increase").rows() == [(None, 2.0)]
        assert store.derived(0, 100).select("model", "value").rows() == [(None, 2.0)]

    def test_a_frame_without_a_column_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="no column increase"):
            store.append_minutes(frame([minute(60)], MINUTES).drop("increase"))
        with pytest.raises(StoreError, match="not finite"):
            store.append_derived(frame([derived(math.nan)], DERIVED))
        with pytest.raises(StoreError, match="not of the kinds"):
            store.append_derived(frame([derived(1.0)], DERIVED).with_columns(value=pl.lit("x")))

    def test_columns_may_come_in_any_order(self, store: Store) -> None:
        rows = frame([minute(60, increase=5.0)], MINUTES)
        store.append_minutes(rows.select(reversed(rows.columns)).with_columns(extra=1))
        assert_frame_equal(store.minutes(0, 100), rows)

    def test_empty_frames_are_fine(self, store: Store) -> None:
        store.append_minutes(pl.DataFrame(schema=MINUTES))
        store.append_derived(pl.DataFrame(schema=DERIVED))
        assert store.minutes(0, INF).is_empty()

    # deployments

    def test_a_deployment_is_kept_when_it_is_a_change(self, store: Store) -> None:
        assert store.record_deployment(deployment(10))
        assert not store.record_deployment(deployment(25))
        assert store.record_deployment(deployment(40, facts={"kv_block_size": "16", "dtype": "bf16"}))
        assert [d.ts for d in store.deployments(0, 100)] == [10, 40]
        assert store.deployments(0, 100)[0] == deployment(10)

    def test_going_back_is_a_change_too(self, store: Store) -> None:
        for ts, block in ((10, "16"), (20, "32"), (30, "16")):
            assert store.record_deployment(deployment(ts, facts={"kv_block_size": block}))
        assert [d.ts for d in store.deployments(10, 30)] == [10, 20]

    def test_two_targets_change_on_their_own(self, store: Store) -> None:
        assert store.record_deployment(deployment(10, "a"))
        assert store.record_deployment(deployment(10, "b", service="code"))
        assert not store.record_deployment(deployment(20, "a"))
        assert not store.record_deployment(deployment(20, "b", service="code"))
        assert [d.target for d in store.deployments(0, 100, service="code")] == ["b"]

    def test_a_clock_that_stepped_back_does_not_make_changes(self, store: Store) -> None:
        assert store.record_deployment(deployment(100))
        assert store.record_deployment(deployment(50, facts={"dtype": "fp8"}))
        assert not store.record_deployment(deployment(60, facts={"dtype": "fp8"}))
        assert [d.ts for d in store.deployments(0, 1000)] == [50, 100]

    # retention

    def test_each_kind_of_row_is_dropped_at_its_own_age(self, store: Store) -> None:
        at = [0.0, 500.0, 899.0, 900.0, 950.0]
        store.append([full(ts) for ts in at])
        store.append_minutes(frame([minute(ts) for ts in at], MINUTES))
        store.append_derived(frame([derived(ts) for ts in at], DERIVED))
        assert store.compact(1000.0) == 3 * 4 + 3 + 0 + 1
        assert times(store.scrapes(-INF, INF)) == [900.0, 950.0]
        assert set(times(store.samples(-INF, INF))) == {900.0, 950.0}
        assert times(store.minutes(-INF, INF)) == at
        assert times(store.derived(-INF, INF)) == [500.0, 899.0, 900.0, 950.0]
        assert store.compact(1000.0) == 0

    def test_a_series_that_comes_back_after_it_was_dropped_is_kept_again(self, store: Store) -> None:
        store.append([full(0.0, "a"), full(0.0, "b"), full(900.0, "b")])
        store.compact(1000.0)
        store.append([full(1000.0, "a"), full(1000.0, "c")])
        found = store.samples(-INF, INF)
        assert [ts for ts, target in found.select("ts", "target").unique().sort("ts", "target").rows()] == [
            900.0,
            1000.0,
            1000.0,
        ]
        assert (
            found.filter(pl.col("target") == "a")
            .drop("ts")
            .equals(samples_frame(full(0.0, "a").samples).sort("signal").drop("ts"), null_equal=True)
        )

    def test_the_deployment_that_still_runs_is_kept_at_any_age(self, store: Store) -> None:
        for ts, block in ((0, "8"), (10, "16"), (20, "32")):
            store.record_deployment(deployment(ts, "a", facts={"kv_block_size": block}))
        store.record_deployment(deployment(0, "gone"))
        store.append([scrape(5000.0, "a")])
        assert store.compact(5000.0) == 3
        assert [(d.ts, d.target) for d in store.deployments(-INF, INF)] == [(20, "a")]
        assert not store.record_deployment(deployment(5000, "a", facts={"kv_block_size": "32"}))

    def test_a_deployment_that_ran_at_a_time_that_is_kept_is_kept(self, store: Store) -> None:
        store.record_deployment(deployment(0, "a"))
        store.record_deployment(deployment(4001, "a", facts={}))
        store.append([scrape(5000.0, "a")])
        assert store.compact(5000.0) == 0
        assert [d.ts for d in store.deployments(-INF, INF)] == [0, 4001]

    # health and the end

    def test_health_says_what_is_kept(self, store: Store) -> None:
        before = store.health()
        assert before.ok
        assert (before.oldest_s, before.newest_s, before.last_commit_s) == (None, None, None)
        store.append([full(20.0), failed(10.0)])
        after = store.health()
        assert after.ok
        assert (after.oldest_s, after.newest_s, after.last_commit_s) == (10.0, 20.0, 1234.5)
        assert after.bytes > 0

    def test_close_twice_and_then_every_use_says_closed(self, store: Store) -> None:
        store.append([full()])
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.append([full()])
        with pytest.raises(StoreError, match="closed"):
            store.samples(0, 1)
        assert not store.health().ok
