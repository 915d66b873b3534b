import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.app.plan_cost import CostOptions, cost
from goodwatch.app.plan_cost_page import cost_json
from goodwatch.commands.plan_cost import cost as command
from goodwatch.core.errors import ConfigError
from tests.planner.cost.test_truth import FILE

AT = datetime(2026, 12, 1, tzinfo=UTC)
ASKED = CostOptions(
    "Qwen/Qwen3-32B", "H100", quantization="fp8", input_tokens=1200, output_tokens=300, utilisation=0.4, price="2.49"
)
FLAGS = [
    "--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--quantization", "fp8", "--input-tokens", "1200", "--output-tokens", "300",
]  # fmt: skip


def run(*flags: str) -> tuple[int, str]:
    done = CliRunner().invoke(command, [*flags])
    return done.exit_code, done.output


def test_the_bill_is_the_same_whatever_it_is_divided_by() -> None:
    sheet = cost(replace(ASKED, good_ratio=0.9), AT).sheet
    hour = sheet.served_requests_per_s.point * 3600
    assert sheet.output.point * hour * 300 / 1e6 == pytest.approx(2.49)
    assert sheet.total.point * hour * 1500 / 1e6 == pytest.approx(2.49)
    assert sheet.good is not None
    assert sheet.good.point == pytest.approx(sheet.output.point / 0.9)
    assert sheet.full.point == pytest.approx(sheet.output.point * 0.4)
    split = sheet.split
    assert split.uncached_input is not None
    assert split.uncached_input.point * 1200 + split.output.point * 300 == pytest.approx(sheet.output.point * 300)


def test_idle_headroom_and_use_are_the_month() -> None:
    sheet = cost(replace(ASKED, headroom=0.25), AT).sheet
    used = sheet.usd_per_month.point * 0.4
    assert used + sheet.idle_usd.point + sheet.headroom_usd.point == pytest.approx(2.49 * 730.5)
    assert sheet.headroom_usd.point == pytest.approx(2.49 * 730.5 * 0.25)


def test_what_is_served_by_a_known_load_does_not_depend_on_the_speed_model() -> None:
    sheet = cost(replace(ASKED, utilisation=None, requests_per_s=2.0, gpus=1), AT).sheet
    # 2.49 USD/h over 2 requests/s of 300 tokens
    assert sheet.output.point == pytest.approx(2.49 / (2 * 300 * 3600) * 1e6)
    assert sheet.output.low == pytest.approx(sheet.output.high)
    assert sheet.utilisation.low < sheet.utilisation.point < sheet.utilisation.high


def test_tokens_a_day_are_requests_in_another_unit() -> None:
    one = cost(replace(ASKED, utilisation=None, requests_per_s=2.0), AT).sheet
    other = cost(replace(ASKED, utilisation=None, tokens_per_day=2 * 1500 * 86_400.0), AT).sheet
    assert one.output == other.output


def test_gpus_are_counted_for_a_load_with_headroom_and_their_range_is_in_the_bill() -> None:
    sheet = cost(replace(ASKED, utilisation=None, requests_per_s=40.0), AT).sheet
    assert sheet.utilisation.point <= 0.7
    assert sheet.instances.low < sheet.instances.point < sheet.instances.high
    assert sheet.usd_per_month.low < sheet.usd_per_month.point < sheet.usd_per_month.high
    assert any("--headroom was not told" in risk for risk in sheet.risks)


def test_how_many_gpus_a_load_takes_is_no_doubt_of_what_a_full_one_costs() -> None:
    load = cost(replace(ASKED, utilisation=None, requests_per_s=40.0), AT).sheet
    given = cost(replace(ASKED, gpus=load.gpus), AT).sheet
    assert load.full.high == pytest.approx(given.full.high)
    assert load.full.low == pytest.approx(given.full.low)


def test_a_measured_rate_takes_the_place_of_the_model() -> None:
    sheet = cost(replace(ASKED, measured_tokens_per_s=2000.0), AT).sheet
    assert sheet.full.point == pytest.approx(2.49 / (2000 * 3600) * 1e6)
    assert sheet.full.low == pytest.approx(sheet.full.high)


def test_whole_hosts_and_cards_without_an_instance_are_paid_and_said() -> None:
    found = cost(replace(ASKED, tp=2, gpus=3, host_gpus=8), AT).sheet
    assert found.paid_gpus == 8
    assert found.usd_per_hour.point == pytest.approx(8 * 2.49)
    assert any("1 of 3 GPUs hold no instance" in risk for risk in found.risks)
    assert any("5 of 8 GPUs are paid because hosts are paid whole" in risk for risk in found.risks)


def test_the_smallest_tensor_parallelism_that_holds_the_model_is_taken_and_said() -> None:
    found = cost(replace(ASKED, model="meta-llama/Llama-3.1-70B-Instruct", quantization=None), AT)
    assert found.sheet.asked.one.layout.tp == 2  # 141 GB of weights
    assert any("--tp 2 is taken" in note for note in found.notes)


def test_an_old_price_list_is_said() -> None:
    found = cost(replace(ASKED, price="on-demand"), datetime(2027, 12, 1, tzinfo=UTC))
    assert any("days old" in note for note in found.notes)
    assert cost(replace(ASKED, price="on-demand"), AT).notes == ()


def test_the_operators_price_list_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "prices:\n  - {gpu: H100 SXM, provider: acme, gpu_hour_usd: 2.0, as_of: 2026-11-01, source: contract}\n"
    )
    sheet = cost(replace(ASKED, price="on-demand", price_list=path), AT).sheet
    assert (sheet.usd_per_hour.low, sheet.usd_per_hour.high) == (2.0, 2.0)
    assert "acme 2 (2026-11-01)" in sheet.price.usd_per_gpu_hour.basis


def test_routing_states_both_ends_and_the_missing_quality() -> None:
    found = cost(replace(ASKED, route_share=0.8, route_usd_per_m=0.1), AT).routing
    assert found is not None
    assert found.kept is not None
    assert found.given_back.saving.point > 0 > found.kept.saving.point
    assert not found.given_back.allowed


def test_a_price_of_one_card_is_not_taken_for_another() -> None:
    asked = replace(ASKED, route_share=0.8, route_model="Qwen/Qwen3-8B", route_gpu="L40S")
    with pytest.raises(ConfigError, match=r"--price 2\.49 is of H100-SXM-80GB: give --route-price for L40S"):
        cost(asked, AT)
    found = cost(replace(asked, route_price="1.55"), AT).routing
    assert found is not None
    assert "price given with --price" in found.small.basis


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 50), st.floats(0.02, 1.0), st.floats(1.01, 5))
def test_dearer_or_emptier_is_never_cheaper(usd: float, use: float, more: float) -> None:
    base = cost(replace(ASKED, price=str(usd), utilisation=use), AT).sheet.output
    assert cost(replace(ASKED, price=str(usd * more), utilisation=use), AT).sheet.output.point > base.point
    assert cost(replace(ASKED, price=str(usd), utilisation=use / more), AT).sheet.output.point > base.point
    assert base.low <= base.point <= base.high


def test_every_figure_has_an_interval_and_a_basis() -> None:
    found = cost_json(cost(replace(ASKED, compare=("openai/gpt-5-mini",), what_if_hit_ratio=0.5, good_ratio=0.9), AT))
    figures: list[dict[str, Any]] = []

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            if "point" in node:
                figures.append(node)
            for one in node.values():
                collect(one)
        elif isinstance(node, list):
            for one in node:
                collect(one)

    collect(found)
    assert len(figures) >= 20
    for one in figures:
        assert one["interval"][0] <= one["point"] <= one["interval"][1]
    bare = [one for one in figures if not one["basis"]]
    assert bare == []
    json.dumps(found, allow_nan=False)


def test_the_page_says_price_use_split_comparison_and_risks() -> None:
    code, page = run(
        *FLAGS, "--utilisation", "0.4", "--price", "2.49", "--compare", "openai/gpt-5-mini", "--what-if-trim", "0.3"
    )
    assert code == 0, page
    for words in ("a million output tokens", "used: 40%", "an allocation", "beside openai/gpt-5-mini", "break-even", "what would lower it",
                  "genai-prices", "given with --price", "needs --good-ratio"):  # fmt: skip
        assert words in page, words


def test_the_reference_page_shows_both_the_told_and_our_own_figures() -> None:
    code, page = run("--reference")
    assert code == 0, page
    for words in ("0.813", "0.470", "0.200", "-60%", "-69%", "-46%", "by our speed model", "not allowed yet"):
        assert words in page, words
    code, text = run("--reference", "--json")
    assert code == 0
    assert len(json.loads(text)["references"]) == 3


def test_a_file_of_cases_is_one_row_a_case() -> None:
    code, text = run("--cases", str(FILE))
    assert code == 0, text
    found = {row["id"]: row for row in json.loads(text)}
    assert found["l70-fp8-tp2-66"]["usd_per_m"] == pytest.approx(0.4703, rel=0.002)
    assert found["seed-082"]["answer"] == pytest.approx(1558.3, rel=0.001)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--model, --gpu, --input-tokens, --output-tokens: needed, or --cases, or --reference"),
        (FLAGS, "how much is served is not told"),
        ([*FLAGS, "--utilisation", "0.4", "--requests-per-s", "3"], "contradict each other"),
        ([*FLAGS, "--utilisation", "1.2"], "--utilisation 1.2: is not above 0 and at most 1"),
        ([*FLAGS, "--requests-per-s", "-3"], "--requests-per-s -3"),
        ([*FLAGS, "--utilisation", "0.4", "--gpus", "0"], "--gpus 0"),
        ([*FLAGS, "--utilisation", "0.4", "--tp", "2", "--gpus", "1"], "one instance takes 2"),
        ([*FLAGS, "--requests-per-s", "400", "--gpus", "2"], "it takes at least"),
        ([*FLAGS, "--utilisation", "0.4", "--price", "free"], "--price free: unknown"),
        ([*FLAGS, "--utilisation", "0.4", "--price", "nan"], "is no USD per GPU-hour"),
        ([*FLAGS, "--utilisation", "0.4", "--price", "owned"], "needs --capex-usd"),
        ([*FLAGS, "--utilisation", "0.4", "--pue", "1.2"], "only with --price owned"),
        ([*FLAGS, "--utilisation", "0.4", "--spot-loss", "0.1"], "only with --price spot"),
        ([*FLAGS, "--utilisation", "0.4", "--engine", "vlm"], "--engine vlm: unknown; known are"),
        ([*FLAGS, "--utilisation", "0.4", "--tp", "0"], "--tp 0: is below 1"),
        ([*FLAGS, "--utilisation", "0.4", "--headroom", "1"], "--headroom 1"),
        ([*FLAGS, "--utilisation", "0.4", "--concurrency", "0"], "--concurrency 0"),
        ([*FLAGS, "--utilisation", "0.4", "--measured-tokens-per-s", "-5"], "--measured-tokens-per-s -5"),
        ([*FLAGS, "--utilisation", "0.4", "--route-model", "Qwen/Qwen3-8B"], "--route-share is missing"),
        ([*FLAGS, "--utilisation", "0.4", "--route-share", "0.5"], "give --route-model or --route-usd-per-m"),
        ([*FLAGS, "--utilisation", "0.4", "--price-list", "/nowhere"], "is no file"),
        (["--cases", "/nowhere"], "No such file"),
        ([*FLAGS[:3], "H20", *FLAGS[4:], "--utilisation", "0.4"], "no on-demand price is known for it"),
        ([*FLAGS[:3], "L4", *FLAGS[4:], "--utilisation", "0.4", "--tp", "1"], "leaves no room for a request"),
    ],
)
def test_flags_that_must_be_mended_say_how(flags: list[str], message: str) -> None:
    code, text = run(*flags)
    assert code == 2
    assert message in text
