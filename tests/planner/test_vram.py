"""The ledger: budget rules, outcomes, what is unknown, what is refused."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.catalogue import accelerators, engine_budgets, known_model
from planner.gpu import Gpu, chosen
from planner.ledger import ledger
from planner.quantisation import kv_bytes, nearest, scheme
from planner.tensors import Layout
from planner.version import parsed
from planner.vram import GIB, Ledger, Request, deployed, vision_factor


def asked(model: str = "Qwen/Qwen3-8B", gpu: str = "H100 80GB", version: str = "0.11.0", **more: Any) -> Request:
    engine = engine_budgets()[more.pop("engine", "vllm")]
    dtype = more.pop("kv", "auto")
    return Request(
        known_model(model), chosen(gpu, accelerators()), engine, parsed(version, engine.newest),
        scheme(more.pop("quant", "bf16")), kv_bytes(dtype), dtype, **more,
    )  # fmt: skip


def size(found: Ledger, name: str) -> float:
    return next(line.size.point for line in found.lines if line.name == name) / GIB


def test_the_parts_of_vllms_budget_come_to_its_share_of_the_card() -> None:
    found = ledger(asked())
    assert found.pool is not None
    held = sum(size(found, name) for name in ("weights", "activation peak", "outside PyTorch"))
    assert held + found.pool.point / GIB == pytest.approx(0.9 * 79.18)


@pytest.mark.parametrize(
    ("gpu", "version", "sequences", "tokens", "share"),
    [
        ("H100 80GB", "0.11.0", 1024, 8192, 0.90),
        ("A100 80GB", "0.11.0", 256, 2048, 0.90),
        ("A100 80GB", "0.8.5", 1024, 8192, 0.90),  # the A100 was not left out yet
        ("L40S", "0.11.0", 256, 2048, 0.90),
        ("H100 80GB", "0.21.0", 1024, 8192, 0.92),
        ("H200", "0.33.0", 1024, 8192, 0.92),
        ("B200", "0.33.0", 1024, 16384, 0.92),
    ],
)
def test_vllms_defaults_depend_on_version_and_card(
    gpu: str, version: str, sequences: int, tokens: int, share: float
) -> None:
    found = ledger(asked(gpu=gpu, version=version)).settings
    assert (found.max_num_seqs, found.batched_tokens, found.fraction.point) == (sequences, tokens, share)


def test_an_upgrade_to_021_takes_the_graphs_from_the_pool() -> None:
    old, new = ledger(asked(version="0.20.0")), ledger(asked(version="0.21.0", fraction=0.9))
    graphs = next(line for line in new.lines if line.name == "CUDA graphs")
    assert "estimate" in graphs.size.basis
    assert old.pool is not None
    assert new.pool is not None
    assert new.pool.point < old.pool.point


# server_args.py of SGLang, worked out by hand: 1 - reserve / card
@pytest.mark.parametrize(
    ("version", "gpu", "tp", "share"),
    [
        ("0.4.3", "RTX 4090", 4, 0.85),
        ("0.4.3", "H100 80GB", 8, 0.81),
        ("0.4.10", "H100 80GB", 1, 1 - 10.0 / 79.97),
        ("0.5.6", "H100 80GB", 1, 1 - (512 + 12288 + 512 + 128) / (79.97 * 1024)),
    ],
)
def test_sglangs_share_follows_its_version(version: str, gpu: str, tp: int, share: float) -> None:
    found = ledger(asked(gpu=gpu, version=version, engine="sglang", layout=Layout(tp)))
    assert found.settings.fraction.point == pytest.approx(share, abs=0.0006)


def test_sglang_keeps_more_back_for_an_image_encoder() -> None:
    """27 layers of 1,152 against 24 of 1,024: 0.95 x (1 - 0.1 x 0.424)."""
    assert vision_factor(27, 1152) == pytest.approx(0.9098, abs=1e-4)


def test_tensorrt_takes_its_share_of_what_is_free() -> None:
    found = ledger(asked(engine="tensorrt-llm", version="1.2"))
    assert found.pool is not None
    free = 79.18 * GIB - sum(line.size.point for line in found.lines)
    assert found.pool.point == pytest.approx(0.9 * free)


def test_llama_cpp_sizes_the_cache_by_the_context() -> None:
    found = ledger(
        asked("meta-llama/Llama-2-7b-hf", "RTX 3090", "2024-02", engine="llama.cpp", quant="gguf-q4_k_m",
              max_model_len=2048)
    )  # fmt: skip
    assert found.pool is not None
    assert found.pool.point == 1024 * 2**20  # the log says 1024.00 MiB
    assert found.outcome == "ok"


def test_a_model_that_does_not_fit_runs_out_of_memory_while_loading() -> None:
    found = ledger(asked("deepseek-ai/DeepSeek-R1", quant="fp8"))
    assert found.outcome == "oom"
    assert "weights take" in found.reason


def test_one_request_that_does_not_fit_is_refused() -> None:
    found = ledger(asked("Qwen/Qwen3-32B", version="0.13.0", max_model_len=32000))
    assert found.outcome == "fail"
    assert found.reason.startswith("one request of 32,000 tokens needs 7.81 GiB")


def test_a_card_of_unknown_size_gives_no_pool_and_says_so() -> None:
    request = replace(asked(), gpu=Gpu("(unknown)", None, named=False))
    found = ledger(request)
    assert (found.pool, found.tokens, found.concurrency, found.certain) == (None, None, None, False)
    assert "the card and its memory" in found.unknown
    assert found.weights.total.point > 0


def test_a_version_that_is_not_told_widens_the_interval() -> None:
    engine = engine_budgets()["vllm"]
    told, untold = asked(version="0.33.0"), replace(asked(), version=parsed("(V1)", engine.newest))
    narrow, wide = ledger(told).pool, ledger(untold).pool
    assert narrow is not None
    assert wide is not None
    assert wide.high - wide.low > narrow.high - narrow.low
    assert any("the version of vLLM" in text for text in ledger(untold).unknown)


def test_a_card_that_only_the_press_described_is_named_as_such() -> None:
    assert any(
        "Kunlun-P800 are of low confidence (press only)" in text for text in ledger(asked(gpu="Kunlun-P800")).unknown
    )


def test_a_data_parallel_group_shares_the_experts_in_vllm_and_layers_go_whole_in_llama_cpp() -> None:
    engines, model = engine_budgets(), known_model("Qwen/Qwen3-30B-A3B")
    assert deployed(engines["vllm"], model, Layout(2, 1, 1, 4)).ep == 8
    assert deployed(engines["sglang"], model, Layout(2, 1, 1, 4)).ep == 1
    assert deployed(engines["llama.cpp"], model, Layout(4)) == Layout(1, 4)


@pytest.mark.parametrize(("name", "kind"), [("hqq-int4", "awq-int4"), ("quark-fp8", "fp8"), ("awq-int4", "awq-int4")])
def test_a_scheme_that_a_log_names_and_nobody_listed_is_taken_by_its_kind_and_named(name: str, kind: str) -> None:
    found, taken = nearest(name)
    assert found.name == kind
    assert bool(taken) is (name != kind)


def test_a_draft_joins_the_pool_and_the_weights() -> None:
    plain = ledger(asked("Qwen/Qwen3.6-27B", "H200"))
    draft = ledger(asked("Qwen/Qwen3.6-27B", "H200", draft_tokens=3))
    assert draft.cache.full == plain.cache.full + 1
    assert size(draft, "draft weights") > 0
    assert draft.concurrency is not None
    assert plain.concurrency is not None
    assert draft.concurrency.point < plain.concurrency.point


def test_lora_buffers_are_counted() -> None:
    assert size(ledger(asked(lora_rank=64)), "LoRA buffers") == pytest.approx(
        4 * size(ledger(asked(lora_rank=16)), "LoRA buffers")
    )


def test_a_good_start_of_sglang_may_still_run_out_of_memory() -> None:
    found = ledger(asked("Qwen/Qwen3-32B", "H200", "0.4.3", engine="sglang", fraction=0.97, batched_tokens=65536))
    assert found.outcome == "ok"
    assert any("after a good start" in text for text in found.risks)


@given(
    st.floats(0.3, 1.0),
    st.integers(1, 4096),
    st.integers(1, 65536),
    st.integers(16, 40960),
    st.sampled_from([1, 2, 4, 8]),
)
def test_point_and_interval_are_in_order_and_more_memory_never_hurts(
    share: float, sequences: int, tokens: int, length: int, tp: int
) -> None:
    request = asked(
        fraction=share, max_num_seqs=sequences, batched_tokens=tokens, max_model_len=length, layout=Layout(tp)
    )
    found, larger = ledger(request), ledger(replace(request, gpu=chosen("H200", accelerators())))
    assert found.pool is not None
    assert larger.pool is not None
    assert found.pool.low <= found.pool.point <= found.pool.high
    assert larger.pool.point > found.pool.point
    assert found.tokens is not None
    assert found.tokens.low <= found.tokens.point <= found.tokens.high
    if found.outcome == "ok":
        assert larger.outcome == "ok"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"fraction": 1.5}, r"--gpu-memory-utilization: 1.5 is outside \(0, 1\]"),
        ({"fraction": 0.0}, "outside"),
        ({"max_model_len": -1}, "max_model_len: -1 is outside 1 to 100,000,000"),
        ({"max_model_len": 10**12}, "max_model_len"),
        ({"max_num_seqs": 0}, "max_num_seqs: 0 is outside"),
        ({"other_gib": -2.0}, "other processes hold -2.0 GiB"),
        ({"other_gib": float("nan")}, "other processes hold nan GiB"),
        ({"layout": Layout(tp=3)}, "--tensor-parallel-size 3: does not divide the 32 attention heads"),
        ({"layout": Layout(tp=0)}, "tp: 0 is outside 1 to 4096"),
        ({"layout": Layout(pp=99)}, "pipeline of 99: Qwen/Qwen3-8B has 36 layers only"),
        ({"layout": Layout(ep=8)}, "expert parallel 8: Qwen/Qwen3-8B has no experts"),
        ({"quant": "fp7"}, "--quantization fp7: unknown; known are bf16"),
        ({"kv": "fp3"}, "--kv-cache-dtype fp3: unknown"),
        ({"gpu": "H1000"}, "--gpu H1000: unknown; near it: "),
        ({"model": "nobody/nothing-1b"}, "--model nobody/nothing-1b: unknown model"),
    ],
)
def test_bad_input_gets_a_precise_message(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        asked(**flags)


@pytest.mark.parametrize("name", engine_budgets())
def test_an_engines_eras_ascend_and_name_their_source(name: str) -> None:
    engine = engine_budgets()[name]
    since = [era.since for era in engine.eras]
    assert since == sorted(set(since))
    assert engine.source
    assert {"fraction", "max_model_len", "max_num_seqs", "batched_tokens", "kv_dtype", "tp"} <= set(engine.flags)
    for span in engine.outside_gib.values():
        assert list(span) == sorted(span)


def test_every_card_has_a_source_a_date_and_a_size() -> None:
    for card in accelerators():
        assert card.source
        assert card.as_of == "2026-11-30"
        assert card.total_gib is not None
        assert card.nominal_gb is not None
        assert card.total_gib.low <= card.total_gib.point <= card.total_gib.high <= 1.01 * card.nominal_gb


# GiB that drivers report, not the GB on the box
@pytest.mark.parametrize(
    ("name", "reported"),
    [("H100", 79.18), ("NVIDIA A10", 22.06), ("Tesla T4", 14.56), ("l40s", 44.4), ("MI300X", 191.98), ("H200", 139.8)],
)
def test_a_card_has_the_memory_that_its_driver_reports(name: str, reported: float) -> None:
    found = chosen(name, accelerators()).total_gib
    assert found is not None
    assert found.point == reported
