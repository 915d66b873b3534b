"""What replicas tell against what was recommended: spellings, halves, what was so before, what came and went."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from goodwatch.core.model import Deployment
from planner.applied import effective_of, is_made, running_text, told_changes, traffic_after_s, traffic_before_s
from planner.recommendations import Recommendation
from tests.planner.test_recommendations import NOW_S, recommendation


def told(
    target: str = "a", ts: float = NOW_S, engine: str = "vllm", version: str = "0.11.0", **facts: str
) -> Deployment:
    return Deployment(ts, target, "chat", engine, version, "llama", facts)


def advice(changes: Mapping[str, object], before: Mapping[str, str] | None = None) -> Recommendation:
    return recommendation(changes=changes, before=before)


@pytest.mark.parametrize(
    ("changes", "labels", "args", "made"),
    [
        ({"prefix_caching": True}, {"enable_prefix_caching": "True"}, "", True),
        ({"prefix_caching": True}, {"enable_prefix_caching": "1"}, "", True),
        ({"prefix_caching": True}, {"enable_prefix_caching": "False"}, "", False),
        ({"max_num_seqs": 8}, {}, "", False),  # the engine does not tell: a person must
        ({"max_num_seqs": 8}, {}, "--max-num-seqs 8", True),
        ({"max_num_seqs": 8}, {"max_num_seqs": "128"}, "--max-num-seqs 8", False),  # set but not in effect
        ({"replicas": 4}, {"block_size": "16"}, "", False),
        ({"kv_dtype": "fp8"}, {"cache_dtype": "fp8_e4m3"}, "", True),
        ({"kv_dtype": "fp8"}, {"cache_dtype": "auto"}, "", False),
        ({"prefix_caching": True, "block_tokens": 32}, {"enable_prefix_caching": "True", "block_size": "16"}, "", False),
    ],
)  # fmt: skip
def test_a_change_is_seen_in_what_the_engine_tells(
    changes: dict[str, object], labels: dict[str, str], args: str, made: bool
) -> None:
    assert bool(is_made(advice(changes), [replace(told(), facts=labels)], {"a": args})) is made


def test_sglang_tells_fp8_in_its_own_word() -> None:
    new = told(engine="sglang", version="0.5.4", kv_cache_dtype="fp8_e4m3")
    assert told_changes(advice({"kv_dtype": "fp8"}), new) == {"kv_dtype": True}


def test_every_replica_has_to_tell_it() -> None:
    one = advice({"max_num_seqs": 8})
    assert is_made(one, [told(max_num_seqs="8"), told("b", max_num_seqs="8")], {})
    assert not is_made(one, [told(max_num_seqs="8"), told("b", max_num_seqs="128")], {})
    assert not is_made(one, [told(max_num_seqs="8"), told("b")], {})


def test_replicas_are_counted_where_their_number_is_part_of_the_change() -> None:
    one = advice({"tp": 1, "replicas": 2}, {"tp": "2"})
    args = {"a": "--tensor-parallel-size 1", "b": "--tensor-parallel-size 1"}
    assert not is_made(one, [told()], args)
    assert is_made(one, [told(), told("b")], args)


def test_what_was_so_before_is_no_sign_of_a_change() -> None:
    assert not is_made(
        advice({"max_num_seqs": 8}, {"max_num_seqs": "8"}), [told(max_num_seqs="8", block_size="32")], {}
    )


def test_equal_replicas_run_the_same_whatever_their_caches_hold() -> None:
    assert running_text(told(num_gpu_blocks="100")) == running_text(told("b", NOW_S + 9, num_gpu_blocks="101"))
    assert running_text(told(block_size="16")) != running_text(told(block_size="32"))
    assert running_text(told()) != running_text(told(version="0.12.0"))


def test_replicas_that_differ_are_told_as_both() -> None:
    found = effective_of([told(max_num_seqs="8"), told("b", max_num_seqs="128")])
    assert found is not None
    assert found["max_num_seqs"] == "128 and 8"
    assert effective_of([]) is None


OLD, NEW = told(ts=NOW_S - 9000, max_num_seqs="128"), told(ts=NOW_S + 100, max_num_seqs="8")


def test_traffic_before_ends_with_the_first_replica_of_a_rollout() -> None:
    events = [OLD, replace(OLD, target="b"), NEW, replace(NEW, target="b", ts=NOW_S + 700)]
    assert traffic_before_s(advice({"max_num_seqs": 8}), events, NOW_S + 700) == NOW_S + 100


def test_traffic_before_reaches_to_the_change_where_nothing_else_is_told() -> None:
    assert traffic_before_s(advice({"max_num_seqs": 8}), [], NOW_S + 700) == NOW_S + 700
    same = replace(OLD, target="pod-2", ts=NOW_S + 50)  # a new pod that runs the same
    assert traffic_before_s(advice({"max_num_seqs": 8}), [OLD, same], NOW_S + 700) == NOW_S + 700


@pytest.mark.parametrize(
    "next_one",
    [
        replace(OLD, ts=NOW_S + 500),  # taken back
        replace(NEW, ts=NOW_S + 500, engine_version="0.12.0"),
        replace(OLD, target="pod-9", ts=NOW_S + 500),  # taken back, as a new pod
    ],
)
def test_traffic_after_ends_with_the_next_change(next_one: Deployment) -> None:
    events = [OLD, NEW, next_one]
    assert traffic_after_s(advice({"max_num_seqs": 8}), events, NOW_S + 100, NOW_S + 900) == NOW_S + 500


def test_a_replica_that_comes_later_and_runs_the_same_ends_nothing() -> None:
    events = [OLD, NEW, replace(NEW, target="pod-9", ts=NOW_S + 500)]
    assert traffic_after_s(advice({"max_num_seqs": 8}), events, NOW_S + 100, NOW_S + 900) == NOW_S + 900
