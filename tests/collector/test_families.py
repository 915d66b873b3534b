"""Samples gathered into families: one key for every spelling, whole histograms, nothing made up."""

import math

import pytest

from collector.exposition import parse
from collector.families import Families, Series, family_key
from goodwatch.core.model import Histogram

_NAMES = ("vllm:num_preemptions", "sglang:num_requests", "trtllm_request_success")


def families(*lines: str, content_type: str | None = None) -> Families:
    return Families(parse("\n".join(lines) + "\n", content_type=content_type))


def only(page: Families, name: str) -> Series:
    """The one series of a histogram."""
    family = page.get(name, "histogram")
    assert family is not None
    (series,) = family.series
    return series


@pytest.mark.parametrize(
    "spelled",
    [
        "vllm:num_preemptions",
        "vllm:num_preemptions_total",
        "vllm_num_preemptions",
        "vllm_num_preemptions_total",
        "ray_vllm:num_preemptions_total",
        "ray_vllm_num_preemptions",
        "ray_vllm_num_preemptions_total",
        "kserve_vllm:num_preemptions_total",
        "ray_kserve_vllm_num_preemptions",
        "VLLM:Num_Preemptions_Total",
    ],
)
def test_every_spelling_of_a_counter_has_one_key(spelled: str) -> None:
    assert family_key(spelled) == family_key("vllm:num_preemptions")


@pytest.mark.parametrize(
    "name", ["xvllm:num_preemptions", "vllm:num_preemptions_created", "array_vllm:num_preemptions"]
)
def test_another_name_has_another_key(name: str) -> None:
    assert family_key(name) != family_key("vllm:num_preemptions")


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(
    "lines",
    [
        ("# TYPE {n}_total counter", "{n}_total 7"),
        ("# TYPE {n} counter", "{n}_total 7", "# EOF"),  # OpenMetrics
        ("# TYPE {n} counter", "{n} 7"),  # a relay that trims _total
        ("{n}_total 7",),  # a relay that loses TYPE
        ("{n} 7",),
        ("# TYPE {n}_total untyped", "{n}_total 7"),
        ("# TYPE {n} unknown", "{n} 7", "# EOF"),
    ],
)
def test_a_counter_is_found_however_it_is_declared(name: str, lines: tuple[str, ...]) -> None:
    family = families(*(line.format(n=name) for line in lines)).get(name, "counter")
    assert family is not None
    assert [s.value for s in family.series] == [7]


def test_a_family_of_another_declared_type_is_another_thing() -> None:
    # SGLang's kv_transfer_* changed from gauge to histogram under one name in 0.5.10.
    page = families("# TYPE sglang:kv_transfer_latency_ms gauge", "sglang:kv_transfer_latency_ms 3")
    assert page.get("sglang:kv_transfer_latency_ms", "histogram") is None
    assert page.get("sglang:kv_transfer_latency_ms", "gauge") is not None


def test_the_doubled_total_of_a_renamed_counter_is_found() -> None:
    page = families("# TYPE vllm:kv_offload_total_bytes_total counter", "vllm:kv_offload_total_bytes_total 9")
    assert page.get("vllm:kv_offload_total_bytes", "counter") is not None


_HISTOGRAM = (
    'vllm:x_seconds_bucket{{model_name="m",le="{one}"}} 2',
    'vllm:x_seconds_bucket{{model_name="m",le="+Inf"}} 3',
    'vllm:x_seconds_sum{{model_name="m"}} 4.5',
    'vllm:x_seconds_count{{model_name="m"}} 3',
)


@pytest.mark.parametrize("one", ["1", "1.0", "1e+00", "1.000"])
@pytest.mark.parametrize("kind", ["# TYPE vllm:x_seconds histogram", "# TYPE vllm:x_seconds untyped", "# nothing"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_histogram_is_whole_whatever_its_spelling_and_order(one: str, kind: str, order: int) -> None:
    page = families(kind, *(line.format(one=one) for line in _HISTOGRAM[::order]))
    series = only(page, "vllm:x_seconds")
    assert series.histogram is not None
    assert series.histogram == Histogram((1.0, math.inf), (2, 3), 4.5)
    assert series.labels == {"model_name": "m"}
    assert series.closed


def test_the_same_bound_in_two_spellings_counts_once() -> None:
    page = families("# TYPE h histogram", 'h_bucket{le="1"} 2', 'h_bucket{le="1.0"} 2', 'h_bucket{le="+Inf"} 2')
    series = only(page, "h")
    assert series.histogram is not None
    assert series.histogram.le == (1.0, math.inf)


def test_a_cut_histogram_is_not_closed() -> None:
    page = families("# TYPE h histogram", 'h_bucket{le="0.0"} 0', 'h_bucket{le="0.1"} 1', "h_sum 0.0018")
    series = only(page, "h")
    assert not series.closed


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-Inf"])
def test_a_sum_that_is_no_number_is_unknown(bad: str) -> None:
    page = families("# TYPE h histogram", 'h_bucket{le="1"} 1', 'h_bucket{le="+Inf"} 1', f"h_sum {bad}", "h_count 1")
    series = only(page, "h")
    assert series.histogram is not None
    assert series.histogram.sum is None


@pytest.mark.parametrize("bound", ["NaN", "", "many"])
def test_a_bound_that_is_no_number_is_left_out(bound: str) -> None:
    page = families("# TYPE h histogram", f'h_bucket{{le="{bound}"}} 1', 'h_bucket{le="2"} 1', 'h_bucket{le="+Inf"} 1')
    series = only(page, "h")
    assert series.histogram is not None
    assert series.histogram.le == (2.0, math.inf)


def test_a_torn_page_gives_a_monotone_histogram() -> None:
    # Several API servers write while the page is made: a count may lag its buckets.
    page = families("# TYPE h histogram", 'h_bucket{le="1"} 5', 'h_bucket{le="+Inf"} 4', "h_count 4")
    series = only(page, "h")
    assert series.histogram is not None
    assert series.histogram.count == (5, 5)


def test_a_histogram_that_is_called_total_is_no_counter() -> None:
    name = "vllm:iteration_tokens_total"
    page = families(f"# TYPE {name} histogram", f'{name}_bucket{{le="+Inf"}} 3', f"{name}_sum 8", f"{name}_count 3")
    assert page.get(name, "histogram") is not None
    assert page.get(name, "counter") is None


def test_times_of_creation_are_no_series() -> None:
    page = families(
        "# TYPE vllm:num_preemptions_total counter",
        "vllm:num_preemptions_total 0",
        "# TYPE vllm:num_preemptions_created gauge",
        "vllm:num_preemptions_created 1.7e9",
    )
    assert [f.name for f in page] == ["vllm:num_preemptions_total"]
    assert page.created_count == 1


@pytest.mark.parametrize("spelled", ["NaN", "nan", "-nan"])
def test_a_gauge_that_is_no_number_is_counted_and_has_no_series(spelled: str) -> None:
    page = families("# TYPE sglang:fwd_occupancy gauge", f"sglang:fwd_occupancy {spelled}")
    assert page.get("sglang:fwd_occupancy", "gauge") is None
    assert page.declared("sglang:fwd_occupancy")
    assert page.nan_count == 1


def test_a_family_that_is_named_without_a_series_is_declared_and_not_there() -> None:
    page = families("# HELP vllm:request_success_total x", "# TYPE vllm:request_success_total counter")
    assert page.declared("vllm:request_success")
    assert page.get("vllm:request_success", "counter") is None
    assert [(f.name, f.series) for f in page] == [("vllm:request_success_total", [])]


def test_two_spellings_of_one_histogram_on_a_page_are_one() -> None:
    lines = [line.format(one="1") for line in _HISTOGRAM]
    page = families(*lines, *(line.replace("vllm:", "vllm_") for line in lines))
    series = only(page, "vllm:x_seconds")
    assert series.histogram is not None
    assert series.histogram.total == 3


def test_an_explicit_time_does_not_change_a_value() -> None:
    family = families("# TYPE g gauge", "g 3 1395066363000").get("g", "gauge")
    assert family is not None
    assert family.series[0].value == 3


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ('vllm:a{engine!=""}', True),
        ('vllm:a{engine=""}', True),  # its second series has none
        ('vllm:b{engine!=""}', False),
        ('vllm:b{engine=""}', True),
        ('vllm:{engine!=""}', True),
        ('sglang:{engine!=""}', False),
        ('vllm:c{engine=""}', False),
        ('vllm:empty{engine=""}', False),  # no series, so nothing is known of its labels
    ],
)
def test_a_label_on_a_family_can_be_asked_for(asked: str, *, there: bool) -> None:
    page = families('vllm:a{engine="0"} 1', "vllm:a 1", 'vllm:b{engine=""} 1', "# TYPE vllm:empty gauge")
    assert page.declared(asked) is there


@pytest.mark.parametrize(("name", "wrapped"), [("ray_vllm_x", True), ("kserve_vllm:x", True), ("vllm:x", False)])
def test_a_wrapper_is_known_by_its_prefix(name: str, *, wrapped: bool) -> None:
    assert families(f"{name} 1").wrapped is wrapped
