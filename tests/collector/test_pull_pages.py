"""Stored series → pages: labels that Prometheus added or renamed, copies, mixtures, markers of staleness."""

import math
from typing import Any

import pytest

from collector._pull_options import PullError
from collector._pull_pages import Before, TargetPages, kept_labels, pages_of, parsed
from goodwatch.app.engines import known_engines
from tests.support.prometheus_answers import page, pages, series

KEEP = kept_labels(known_engines().values())


def only(found: list[dict[str, Any]], group_by: tuple[str, ...] = ("instance",), prefer: str = "") -> TargetPages:
    (one,) = pages_of(parsed(found), group_by, KEEP, {("gpu-1:8000",): Before(replica=prefer)})
    return one


def labels_of(target: TargetPages, name: str) -> dict[str, str]:
    (sample,) = (s for p in target.pages.values() for s in p.samples if s.name == name)
    return sample.labels


def test_samples_of_one_time_are_one_page() -> None:
    target = only(pages({100.0: (5.0, 1.0), 115.0: (6.0, 0.0)}))
    assert sorted(target.pages) == [100.0, 115.0]
    assert [(s.name, s.value) for s in target.pages[115.0].samples] == [
        ("vllm:num_requests_running", 0.0), ("vllm:num_requests_waiting", 0.0), ("vllm:request_success_total", 6.0),
    ]  # fmt: skip
    assert target.up == {100.0: True, 115.0: True}
    assert target.duration_s == {100.0: 0.25, 115.0: 0.25}


def test_pages_that_were_read_before_are_not_made_again() -> None:
    found = pages({100.0: (5.0, 1.0), 115.0: (6.0, 0.0)})
    (target,) = pages_of(parsed(found), ("instance",), KEEP, {("gpu-1:8000",): Before(last_s=100.0)})
    assert list(target.pages) == [115.0]
    assert target.times == [100.0, 115.0], "the scrape interval can still be told"


def test_labels_of_the_target_are_taken_off_and_kept_with_the_target() -> None:
    target = only(page(100.0, 5.0, pod="engine-0", zone="a"))
    assert labels_of(target, "vllm:request_success_total") == {"finished_reason": "stop", "model_name": "tiny"}
    assert target.labels == {"job": "vllm", "instance": "gpu-1:8000", "pod": "engine-0", "zone": "a"}


def test_an_engines_label_that_had_to_give_way_gets_its_name_back() -> None:
    found = page(100.0, 5.0, engine="prod")
    for one in found[2:]:
        one["metric"]["exported_engine"] = "0"
    found.append(series("http_requests_total", [(100.0, 7.0)], engine="prod", status="2xx"))
    target = only(found)
    assert labels_of(target, "vllm:num_requests_running") == {"engine": "0", "model_name": "tiny"}
    assert labels_of(target, "http_requests_total") == {"status": "2xx"}, "the target's, on series without one too"


def test_an_engines_label_of_the_targets_name_stays_where_labels_are_honoured() -> None:
    found = [*page(100.0, 5.0), series("vllm:prompt_tokens_total", [(100.0, 9.0)], engine="0", model_name="tiny")]
    assert labels_of(only(found), "vllm:prompt_tokens_total")["engine"] == "0"


def test_well_known_labels_are_taken_off_where_up_is_not_stored() -> None:
    found = [one for one in page(100.0, 5.0, namespace="prod") if one["metric"]["__name__"].startswith("vllm")]
    target = only(found)
    assert labels_of(target, "vllm:num_requests_running") == {"model_name": "tiny"}
    assert target.up == {}
    assert target.labels["namespace"] == "prod"


def test_a_staleness_marker_is_no_sample() -> None:
    target = only(
        [
            series("up", [(100.0, 1.0), (115.0, 0.0)]),
            series("vllm:num_requests_running", [(100.0, 3.0), (115.0, math.nan)]),
        ]
    )
    assert list(target.pages) == [100.0]
    assert target.up == {100.0: True, 115.0: False}


def test_of_two_samples_under_one_name_and_time_the_first_is_taken_and_it_is_told() -> None:
    again = series("vllm:num_requests_running", [(100.0, 4.0)], model_name="tiny", prometheus="b")
    found = page(100.0, 5.0, running=3.0)
    found[0]["metric"]["prometheus"] = "b"  # a label that up has, so it says nothing of the engine
    target = only([*found, again])
    values = [s.value for s in target.pages[100.0].samples if s.name == "vllm:num_requests_running"]
    assert len(values) == 1
    assert [p.reason for p in target.pages[100.0].problems] == ["duplicate_series"]


def test_of_two_copies_the_one_before_is_read_while_it_goes_on() -> None:
    a = pages({100.0: (5.0, 0.0), 115.0: (6.0, 0.0)}, prometheus_replica="a")
    b = pages({107.0: (5.0, 0.0), 122.0: (7.0, 0.0)}, prometheus_replica="b")
    assert sorted(only(a + b).pages) == [107.0, 122.0], "the newer, where none was read before"
    assert sorted(only(a + b, prefer="prometheus_replica=a").pages) == [100.0, 115.0]
    late = pages({207.0: (5.0, 0.0), 222.0: (7.0, 0.0)}, prometheus_replica="b")
    assert sorted(only(a + late, prefer="prometheus_replica=a").pages) == [207.0, 222.0], "the first one stopped"


def test_two_processes_in_one_target_are_refused_with_what_tells_them_apart() -> None:
    a = pages({100.0: (5.0, 0.0), 130.0: (6.0, 0.0)}, instance="gpu-1:8000")
    b = pages({110.0: (50.0, 0.0), 140.0: (60.0, 0.0)}, instance="gpu-2:8000")
    (target,) = pages_of(parsed(a + b), ("job",), KEEP, {})
    assert target.pages == {}
    assert target.ambiguous == (
        "group_by [job] puts 2 scraped processes into one target; they differ in instance: add what tells them apart, "
        "or narrow the selector"
    )


def test_a_process_that_takes_the_place_of_another_is_the_same_target() -> None:
    a = pages({100.0: (5.0, 0.0), 115.0: (6.0, 0.0)}, pod="engine-0-old")
    b = pages({130.0: (1.0, 0.0), 145.0: (2.0, 0.0)}, pod="engine-0-new")
    target = only(a + b)
    assert target.ambiguous == ""
    assert sorted(target.pages) == [100.0, 115.0, 130.0, 145.0]
    assert {frozenset(s.labels) for p in target.pages.values() for s in p.samples if "running" in s.name} == {
        frozenset({"model_name"})
    }


def test_series_without_the_grouping_labels_belong_to_no_target() -> None:
    assert pages_of(parsed(page(100.0, 5.0)), ("namespace", "pod"), KEEP, {}) == []


@pytest.mark.parametrize(
    "broken",
    [
        "text",
        {"values": []},
        {"metric": {"__name__": "up"}, "values": [["now", "1"]]},
        {"metric": {"__name__": "up"}, "values": [[1.0]]},
        {"metric": {"__name__": "up"}, "values": [[1.0, None]]},
        {"metric": [], "values": []},
    ],
)
def test_a_series_of_another_shape_is_named(broken: object) -> None:
    with pytest.raises(PullError, match="cannot be read") as raised:
        parsed([broken])
    assert raised.value.reason == "malformed"


def test_native_histograms_are_left_out() -> None:
    assert parsed([{"metric": {"__name__": "vllm:x"}, "histograms": [[1.0, {"count": "3"}]]}]) == []
