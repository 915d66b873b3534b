"""Queries: which selectors are taken, and that the names asked for are those that engine tables read."""

import re

import pytest

from collector._pull_query import engine_names, kernel_names, matchers, raw_query
from goodwatch.app.engines import known_engines
from goodwatch.core.engine import Engine

ENGINES = known_engines()


@pytest.mark.parametrize(
    ("selector", "inner"),
    [
        ('{job="vllm"}', 'job="vllm"'),
        ('job="vllm"', 'job="vllm"'),
        (' { job = "vllm" , } ', 'job = "vllm"'),
        ("{job=~'vllm.*',namespace!=\"dev\"}", "job=~'vllm.*',namespace!=\"dev\""),
        ('{pod=~"a{2},b|c\\\\.d"}', 'pod=~"a{2},b|c\\\\.d"'),
        ("{job=`it's`}", "job=`it's`"),
        ('{job="with \\"quotes\\""}', 'job="with \\"quotes\\""'),
    ],
)
def test_a_selector_is_taken_with_or_without_braces(selector: str, inner: str) -> None:
    assert matchers(selector) == inner


@pytest.mark.parametrize(
    "selector",
    [
        "", "{}", "vllm", "job=vllm", '{job="vllm"', 'job="vllm"}', '{job="vllm"} or up', '{job="a"}[5m]', '{job="a" job="b"}',
        '{job="a\nb"}', 'up{job="a"}', '{job="a"},__name__=~".*"',
    ],
)  # fmt: skip
def test_anything_but_label_matchers_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="write"):
        matchers(selector)


def test_a_metric_name_is_goodwatchs_choice() -> None:
    with pytest.raises(ValueError, match="names a metric"):
        matchers('{__name__="up",job="vllm"}')


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda e: e.name)
def test_every_family_of_a_pinned_table_is_asked_for(engine: Engine) -> None:
    wanted = re.compile(engine_names([engine], pinned=True))
    for source in (s for listed in engine.signals.values() for s in listed):
        if not source.metric.endswith(":") and "json" not in source.metric:
            suffix = {"counter": "_total", "histogram": "_bucket"}.get(source.type, "")
            plain = source.metric.replace(":", "_")
            for name in (source.metric + suffix, plain + suffix, plain):
                assert wanted.fullmatch(name), name


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("vllm:num_requests_running", True),
        ("vllm_num_requests_running", True),
        ("ray_vllm:num_requests_running", True),
        ("sglang_time_to_first_token_seconds_bucket", True),
        ("http_requests_total", True),
        ("process_start_time_seconds", True),
        ("time_to_first_token_seconds_bucket", False),  # only a declared engine may claim it
        ("node_cpu_seconds_total", False),
        ("my_vllm:num_requests_running", False),
    ],
)
def test_names_without_an_engines_prefix_are_left_alone(name: str, asked: bool) -> None:
    assert bool(re.fullmatch(engine_names(ENGINES.values(), pinned=False), name)) is asked


def test_a_query_is_one_range_vector_of_everything() -> None:
    query = raw_query("vllm[:_].+", 'job="vllm"', 45.0, {"instance": 'a"b'})
    assert query == (
        '{__name__=~"up|scrape_duration_seconds|vllm[:_].+",__name__!~".+_created",job="vllm",instance="a\\"b"}[45000ms]'
    )


def test_what_tells_that_a_target_was_there_is_little() -> None:
    wanted = re.compile(kernel_names(ENGINES.values()))
    assert wanted.fullmatch("vllm:num_requests_running")
    assert wanted.fullmatch("sglang_num_running_reqs")
    assert not wanted.fullmatch("vllm:time_to_first_token_seconds_bucket")
