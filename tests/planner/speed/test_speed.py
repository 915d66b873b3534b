import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.speed.deployment import Deployment, Named, deployment
from planner.speed.efficiency import factors, shipped, unseen
from planner.speed.peaks import peaks
from planner.speed.prediction import Load, predicted
from planner.speed.steps import Lengths, closed_loop, decode_s, prompt_s, saturated
from planner.tensors import Layout


def h100(**changes: object) -> Deployment:
    told: dict[str, object] = {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "precision": "bf16", "gpu": "H100-SXM-80GB", "gpu_count": 1,
        "engine": "vllm", "engine_version": "0.12.0", "layout": Layout(), "kv_dtype": "auto",
    }  # fmt: skip
    return deployment(Named(**{**told, **changes}))  # type: ignore[arg-type]


def test_peaks_are_those_of_the_data_sheet() -> None:
    found = peaks("H100 80GB SXM")
    assert found.bandwidth_bytes_per_s == 3.35e12  # NVIDIA H100 SXM data sheet: 3.35 TB/s
    assert found.flops["fp8"] == pytest.approx(1978.9e12)  # dense
    assert found.link_bytes_per_s == 450e9  # NVLink 4: 900 GB/s both directions


def test_a_step_reads_all_weights_of_a_dense_model_once() -> None:
    work = h100().work
    # 8.03e9 parameters less the embedding (128,256 x 4,096), two bytes each, at 3.35 TB/s
    assert work.weights_s(1) == pytest.approx((8.03e9 - 128256 * 4096) * 2 / 3.35e12, rel=0.01)
    assert work.weights_s(64) == work.weights_s(1)
    # 2 x 32 layers x 8 KV heads x 128 x 2 bytes a token
    assert work.context_s(1000) == pytest.approx(1000 * 131072 / 3.35e12, rel=1e-6)


def test_a_bridge_joins_two_cards_and_pcie_the_rest() -> None:
    two = h100(gpu="A100-PCIe-80GB", gpu_count=2, layout=Layout(2)).work
    eight = h100(gpu="A100-PCIe-80GB", gpu_count=8, layout=Layout(8)).work
    assert eight.exchange_s > 5 * two.exchange_s


def test_experts_are_read_as_more_tokens_touch_them() -> None:
    work = h100(model="Qwen/Qwen3-30B-A3B").work
    # 8 of 128 experts a token: one token reads 1/16 of them, many read all
    assert work.weights_s(1) == pytest.approx(work.dense_s + work.expert_s / 16, rel=1e-9)
    assert work.weights_s(10_000) == pytest.approx(work.dense_s + work.expert_s, rel=1e-6)


@given(st.floats(1, 500), st.floats(1, 2), st.floats(10, 20_000))
def test_more_requests_and_longer_contexts_never_make_a_step_faster(
    running: float, times: float, context: float
) -> None:
    one = h100()
    by = factors(shipped(), one)
    assert decode_s(one, by, running * times, context) >= decode_s(one, by, running, context)
    assert decode_s(one, by, running, context * times) >= decode_s(one, by, running, context)
    assert prompt_s(one, by, context * times) >= prompt_s(one, by, context)
    assert prompt_s(one, by, context, context / 2) <= prompt_s(one, by, context)


@given(st.floats(1, 200), st.floats(10, 4000), st.floats(2, 2000))
def test_a_closed_loop_obeys_littles_law(concurrency: float, tokens: float, output: float) -> None:
    one = h100()
    found = closed_loop(one, factors(shipped(), one), Lengths(tokens, output), concurrency)
    assert found.ttft_s is not None
    each = found.ttft_s + found.tpot_s * (output - 1)
    assert found.output_tokens_per_s * each == pytest.approx(concurrency * output, rel=1e-9)


def test_a_saturated_engine_beats_every_closed_loop() -> None:
    one = h100(engine="tensorrt-llm", engine_version="1.0", precision="fp8", kv_dtype="fp8")
    by = factors(shipped(), one)
    best = saturated(one, by, Lengths(128, 128)).output_tokens_per_s
    assert all(closed_loop(one, by, Lengths(128, 128), n).output_tokens_per_s < 1.3 * best for n in (1, 16, 128))


def test_what_was_never_measured_has_a_wider_interval_and_is_named() -> None:
    load = Load("closed_loop", Lengths(1000, 300), 16)
    known, new = h100(), h100(engine="lmdeploy", gpu="MI300X-192GB")
    sure, doubtful = predicted(known, load, shipped()), predicted(new, load, shipped())
    assert doubtful.output_tokens_per_s.high / doubtful.output_tokens_per_s.point > (
        sure.output_tokens_per_s.high / sure.output_tokens_per_s.point
    )
    assert any("lmdeploy" in one for one in doubtful.unknown)
    assert any("CDNA3" in one for one in unseen(shipped(), new))


def test_a_model_that_nobody_knows_is_taken_as_its_nearest_and_named() -> None:
    found = h100(model="acme/unheard-of-9b", params=9e9, active=9e9)
    assert found.doubt > 0.1
    assert "the layers of acme/unheard-of-9b" in found.unknown[0]


def test_a_card_without_bandwidth_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown"):
        h100(gpu="Voodoo-3")


def test_ranks_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(ConfigError, match="tp 3: does not divide the 32 attention heads"):
        h100(gpu_count=3, layout=Layout(3))
