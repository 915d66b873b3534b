"""``goodwatch plan size`` from the command line to the page."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from goodwatch.commands.plan_size import size

CHAT = "Qwen3-32B on H100, chat, 5 req/s, 1.2k in / 300 out, TTFT 500 ms, TPOT 50 ms"


def asked(*words: str) -> Result:
    return CliRunner().invoke(size, [*words])


def answer(*words: str) -> dict[str, Any]:
    done = asked(*words, "--json")
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_the_page_answers_everything() -> None:
    done = asked(CHAT)
    assert done.exit_code == 0, done.output
    for part in ("run:", "TTFT P99", "TPOT P50", "within all targets", "USD a month", "per million output tokens", "KV cache",
                 "vllm serve Qwen/Qwen3-32B", "what lost, and why", "assumed:", "configurations"):  # fmt: skip
        assert part in done.output, part


def test_json_has_intervals_and_the_same_answer_twice() -> None:
    first, second = answer(CHAT), answer(CHAT)
    assert first == second
    best = first["best"]
    low, high = best["ttft_p99_s"]["interval"]
    assert low <= best["ttft_p99_s"]["point"] <= high
    assert best["usd_per_month"]["point"] > 0
    assert first["not_understood"] == []
    assert first["counted"]["space"] > 10_000


def test_flags_say_the_same_as_a_sentence() -> None:
    flags = ("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--form", "chat", "--requests-per-s", "5", "--input-tokens", "1200",
             "--output-tokens", "300", "--ttft-s", "0.5", "--tpot-s", "0.05")  # fmt: skip
    assert answer(*flags)["best"] == answer(CHAT)["best"]


def test_nothing_fits_is_an_answer_with_the_nearest() -> None:
    text = "Qwen2.5-72B on H100, chat, 20 req/s, 1.2k in / 300 out, TTFT 500 ms, $8k a month"
    done = asked(text)
    assert done.exit_code == 1
    assert "nothing fits: the cheapest that holds costs $" in done.output
    assert "would do with another answer to the budget" in done.output


def test_what_was_not_understood_is_on_the_page() -> None:
    assert "not understood, and not in the answer: “purple unicorns”" in asked(f"{CHAT}, purple unicorns").output


def test_a_trace_is_what_arrives(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    rows = [f"{i * 0.25},{800 + i % 7 * 100},{150 + i % 5 * 20}" for i in range(600)]
    path.write_text("arrived_s,input_tokens,output_tokens\n" + "\n".join(rows))
    found = answer("Qwen3-32B on H100, chat", "--trace", str(path))
    assert found["asked"]["requests_per_s"] == pytest.approx(4.0, rel=0.01)  # one every quarter of a second
    assert found["best"] is not None or found["near"]


def test_a_day_of_requests_is_a_rate_and_its_evenness_is_named() -> None:
    found = answer("Qwen3-8B on L4, 86.4k requests per day, 200 in / 50 out, TTFT 3 s")
    assert found["asked"]["requests_per_s"] == pytest.approx(1.0)
    assert any("the day is even" in one for one in found["assumed"])
    assert answer("Qwen3-8B on L4, 86.4k requests per day, 200 in / 50 out, TTFT 3 s", "--peak", "3")["asked"]["requests_per_s"] == pytest.approx(3.0)  # fmt: skip


def test_requests_at_once_are_a_rate_by_the_targets() -> None:
    # Little: 60 under way, each 1 s + 100 x 50 ms = 6 s: 10 a second
    found = answer("Qwen3-8B on H100, 60 concurrent requests, 200 in / 100 out, TTFT 1 s, TPOT 50 ms")
    assert found["asked"]["requests_per_s"] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("chat, 5 req/s, 100 in 100 out",), "no model is told"),
        (("Foo-13B on H100, 5 req/s, 100 in 100 out",), "Foo-13B"),
        (("Qwen3-8B on H100, 5 req/s",), "input tokens and output tokens of a mean request: not told"),
        (("Qwen3-8B on H100, 100 in 100 out",), "how much arrives is not told"),
        (("Qwen3-8B on H100, 5 req/s, 20 concurrent requests, 100 in 100 out",), "say the load in one way"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--requests-per-s", "6"), "--requests-per-s 6.0: the sentence says 5.0"),
        (("Qwen3-8B, 100 in 100 out", "--requests-per-s", "-2"), "--requests-per-s -2: is not above 0"),
        (("Qwen3-8B, 5 req/s, 100 out", "--input-tokens", "-4"), "--input-tokens -4: is not above 0"),
        (("Qwen3-8B, 5 req/s, 900k in 100 out",), "is made for"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--gpu", "T-Head-PPU"), "has no bandwidth"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--gpu", "H1000"), "--gpu H1000: unknown"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--price", "cheap"), "--price cheap: unknown"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--price", "owned"), "--price owned: give USD per GPU-hour"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--engine-version", "0.11.0"), "of which engine"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--form", "poem"), "--form poem"),
        (("Qwen3-8B, 5 req/s, 100 in 100 out", "--objective", "3"), "--objective 3: is not a share"),
        (("Qwen3-8B, chat", "--trace", "none.csv"), "--trace none.csv"),
        (("Qwen3-8B, chat", "--trace", "none.txt"), "is none of .csv"),
    ],
)
def test_a_question_that_must_be_mended_says_how(words: tuple[str, ...], message: str) -> None:
    done = asked(*words)
    assert done.exit_code == 2, done.output
    assert message in done.output
