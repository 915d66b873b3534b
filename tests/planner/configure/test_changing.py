"""From one configuration to another: what is set, what it takes, and whether answers may change."""

import pytest
from hypothesis import given, settings

from goodwatch.core.errors import ConfigError
from planner.configure.changing import diff, with_changes
from planner.configure.values import Configuration
from tests.planner.configure.cases import configurations

NOW = Configuration(
    engine="vllm", engine_version="0.13.0", model="Qwen/Qwen3-32B", gpu="H100-SXM-80GB", tp=2, max_num_seqs=256
)


@pytest.mark.parametrize(
    ("changes", "text", "restart", "quality"),
    [
        ({"max_num_seqs": 128}, "--max-num-seqs 256 → --max-num-seqs 128", "process", False),
        ({"kv_dtype": "fp8"}, "default → --kv-cache-dtype fp8", "process", True),
        ({"prefix_caching": True}, "default → --enable-prefix-caching", "process", False),
        ({"quantisation": "fp8"}, "default → --quantization fp8", "process", True),
        ({"replicas": 3}, "replicas default → 3", "none", False),
        ({"max_num_seqs": None}, "--max-num-seqs 256 → default", "process", False),
    ],
)
def test_a_change_is_told_in_the_engines_words(
    changes: dict[str, object], text: str, restart: str, quality: bool
) -> None:
    after, left = with_changes(NOW, changes)
    (found,) = diff(NOW, after)
    assert left == ()
    assert (found.text, found.restart, found.quality) == (text, restart, quality)


def test_a_layout_that_moves_two_flags_tells_both() -> None:
    before = Configuration(engine="sglang", engine_version="0.5.6", model="m", ep=8, tp=8)
    after, _ = with_changes(before, {"tp": None, "dp": 8})
    assert [one.setting for one in diff(before, after)] == ["tp", "dp"]
    assert diff(before, after)[1].flags_after == "--data-parallel-size 8 --enable-dp-attention"


def test_what_is_no_setting_of_an_engine_is_handed_back() -> None:
    after, left = with_changes(NOW, {"admitted_ratio": 0.9, "tp": 4})
    assert after.tp == 4
    assert left == ("admitted_ratio",)


def test_another_engine_starts_from_its_own_defaults() -> None:
    before = Configuration(engine="vllm", model="m", engine_version="0.13.0", memory_fraction=0.9, tp=2)
    after, _ = with_changes(before, {"engine": "sglang"})
    assert (after.engine_version, after.memory_fraction, after.tp) == ("", None, 2)
    engine = diff(before, after)[0]
    assert (engine.setting, engine.restart, engine.quality) == ("engine", "topology", True)


def test_speculation_that_is_turned_off_takes_its_draft_with_it() -> None:
    before, _ = with_changes(NOW, {"speculative_method": "eagle", "speculative_tokens": 3, "draft_model": "d"})
    after, _ = with_changes(before, {"speculative_tokens": 0})
    assert after == NOW


def test_a_value_that_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs: 0 is outside"):
        with_changes(NOW, {"max_num_seqs": 0})


@settings(max_examples=50, deadline=None)
@given(configurations())
def test_nothing_differs_from_itself(one: Configuration) -> None:
    assert diff(one, one) == ()
