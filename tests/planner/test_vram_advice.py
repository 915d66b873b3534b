"""What makes a failing start succeed."""

import pytest

from planner.catalogue import accelerators
from planner.ledger import ledger
from planner.vram import with_length
from planner.vram_advice import changes, longest
from tests.planner.test_vram import asked


def test_a_start_that_succeeds_needs_no_change() -> None:
    assert changes(ledger(asked()), accelerators()) == ()


def test_changes_come_gentlest_first_and_each_says_its_effect() -> None:
    found = changes(ledger(asked("Qwen/Qwen3-32B", version="0.13.0", max_model_len=32000)), accelerators())
    steps = [change.step for change in found]
    assert steps == sorted(steps)
    assert set(steps) == {1, 2, 3, 4, 5}
    assert all(change.effect for change in found)
    shorter = found[0]
    assert shorter.starts
    assert shorter.what == "--max-model-len 17408"  # the log of this start: 18.2k tokens fit


def test_prefix_caching_is_named_as_no_help_for_a_start() -> None:
    found = changes(ledger(asked("Qwen/Qwen3-32B", version="0.13.0", max_model_len=32000)))
    (prefix,) = (change for change in found if change.step == 2)
    assert not prefix.starts
    assert "does not make this start" in prefix.effect


@pytest.mark.parametrize("length", [20_000, 29_000, 40_960])
def test_the_longest_length_starts_and_a_little_more_does_not(length: int) -> None:
    request = asked("Qwen/Qwen3-32B", version="0.13.0", max_model_len=length)
    found = longest(request, length)
    assert found is not None
    assert ledger(with_length(request, found)).outcome == "ok"
    assert ledger(with_length(request, found + 2048)).outcome == "fail"


def test_a_model_larger_than_its_card_is_sent_to_more_cards_not_to_shorter_requests() -> None:
    found = changes(ledger(asked("deepseek-ai/DeepSeek-R1", "H200", quant="fp8")), accelerators())
    assert not any(change.starts for change in found if change.step in (1, 2))
    (more,) = (change for change in found if change.step == 4 and change.starts)
    assert more.what == "--tensor-parallel-size 8"


def test_no_fp8_checkpoint_is_advised_to_a_card_without_fp8() -> None:
    found = changes(ledger(asked("Qwen/Qwen3-32B", "A100 80GB", max_model_len=40960, fraction=0.85)))
    assert not any(change.what == "a checkpoint in fp8" for change in found)
    assert any(change.what == "a checkpoint in awq-int4" and change.starts for change in found)


def test_every_change_that_is_said_to_start_does() -> None:
    request = asked("Qwen/Qwen3-32B", version="0.13.0", max_model_len=32000)
    for change in changes(ledger(request), accelerators()):
        if change.starts:
            assert change.kv_tokens is not None
            assert change.kv_tokens > 0
