"""Sentences as people write them, and what a reader of them would say they mean."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalogue import accelerators, model_names
from planner.search.sentence import Sentence, understood

CARDS = [one.name for one in accelerators()]
MODELS = model_names()


def heard(text: str) -> Sentence:
    return understood(text, models=MODELS, cards=CARDS)


#: sentence → what a person would write down from it; names that are not listed were not said
SENTENCES: list[tuple[str, dict[str, Any]]] = [
    ("Qwen2.5-72B on H100, chat, 20 req/s, 1.2k in / 300 out, TTFT 500 ms, $8k a month",
     {"model": "Qwen/Qwen2.5-72B-Instruct", "gpus": ("H100",), "form": "chat", "requests_per_s": 20.0, "input_tokens": 1200.0,
      "output_tokens": 300.0, "ttft_s": 0.5, "budget_usd_per_month": 8000.0}),
    ("Llama 3.1 70B on 8x H100 80GB, RAG, 5 rps, 4000 input tokens, 250 output tokens, p99 TTFT < 2 s",
     {"model": "meta-llama/Llama-3.1-70B-Instruct", "gpus": ("H100 80GB",), "gpu_count": 8, "form": "rag", "requests_per_s": 5.0,
      "input_tokens": 4000.0, "output_tokens": 250.0, "ttft_s": 2.0, "objective": 0.99}),
    ("qwen3 32b, 2×L40S, fp8, 100k requests per day, 800/200 tokens",
     {"model": "Qwen/Qwen3-32B", "gpus": ("L40S",), "gpu_count": 2, "quantization": "fp8", "requests_per_day": 100_000.0,
      "input_tokens": 800.0, "output_tokens": 200.0}),
    ("Qwen2.5-72B 用 8 张 H100, 客服, 每秒 20 个请求, 输入 1200 输出 300, 首字延迟 500 毫秒, 每月 8千美元",
     {"model": "Qwen/Qwen2.5-72B-Instruct", "gpus": ("H100",), "gpu_count": 8, "form": "chat", "requests_per_s": 20.0,
      "input_tokens": 1200.0, "output_tokens": 300.0, "ttft_s": 0.5, "budget_usd_per_month": 8000.0}),
    ("DeepSeek-V3 on H200, agent, 64 concurrent requests, 8k in, 1k out, 25 tok/s per user, SGLang",
     {"model": "deepseek-ai/DeepSeek-V3", "gpus": ("H200",), "form": "agent", "concurrency": 64.0, "input_tokens": 8000.0,
      "output_tokens": 1000.0, "tpot_s": 0.04, "engine": "sglang"}),
    ("gpt-oss-120b on B200, 2 million tokens a day, TPOT 20ms, 99% of requests",
     {"model": "openai/gpt-oss-120b", "gpus": ("B200",), "tokens_per_day": 2e6, "tpot_s": 0.02, "objective": 0.99}),
    ("Mixtral 8x7B, A100 40GB, 10 qps, 32k context, spot, budget 5000 USD a month, 60% shared prefix",
     {"model": "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpus": ("A100 40GB",), "requests_per_s": 10.0, "max_model_len": 32_768,
      "price": "spot", "budget_usd_per_month": 5000.0, "shared_ratio": 0.6}),
    ("Qwen3-8B on RTX 4090 or L4, vLLM 0.11.0, 2 req/s, prompts of 500 tokens, answers of 100 tokens, latency under 3 s",
     {"model": "Qwen/Qwen3-8B", "gpus": ("RTX 4090", "L4"), "engine": "vllm", "engine_version": "0.11.0", "requests_per_s": 2.0,
      "input_tokens": 500.0, "output_tokens": 100.0, "e2e_s": 3.0}),
    ("昇腾 910B2 x 8 跑 Qwen3-32B, 并发 50", {"model": "Qwen/Qwen3-32B", "gpus": ("910B2",), "gpu_count": 8, "concurrency": 50.0}),
    ("./model/config.json on H100, 1 req/s, 1000 in 100 out, $2.49 per GPU hour",
     {"model": "./model/config.json", "gpus": ("H100",), "requests_per_s": 1.0, "input_tokens": 1000.0, "output_tokens": 100.0,
      "price": "2.49"}),
    ("Qwen3-4B, 每天 2万 请求, 输入 600, 输出 150, 每月 500 美元",
     {"model": "Qwen/Qwen3-4B", "requests_per_day": 20_000.0, "input_tokens": 600.0, "output_tokens": 150.0,
      "budget_usd_per_month": 500.0}),
    ("phi-4 for code completion, 120 requests per minute, ISL 2000, OSL 50",
     {"model": "microsoft/phi-4", "form": "code-completion", "requests_per_s": 2.0, "input_tokens": 2000.0, "output_tokens": 50.0}),
    ("Phi-4-mini voice 3 req/s 200 in 80 out",
     {"model": "microsoft/Phi-4-mini-instruct", "form": "voice", "requests_per_s": 3.0, "input_tokens": 200.0, "output_tokens": 80.0}),
    ("gemma-3-27b-it, MI300X, 1.5 req/s, in tokens: input 3k, output 500, e2e 20 s",
     {"model": "google/gemma-3-27b-it", "gpus": ("MI300X",), "requests_per_s": 1.5, "input_tokens": 3000.0, "output_tokens": 500.0,
      "e2e_s": 20.0}),
    ("Llama-3.3-70B, at most 8 GPUs, AWQ, 4 rps, 1,500 in and 400 out",
     {"model": "meta-llama/Llama-3.3-70B-Instruct", "most_gpus": 8, "quantization": "awq-int4", "requests_per_s": 4.0,
      "input_tokens": 1500.0, "output_tokens": 400.0}),
    ("Qwen3-235B-A22B on H200, TP 8, reserved, $96k a year", {"model": "Qwen/Qwen3-235B-A22B", "gpus": ("H200",), "tp": 8,
     "price": "reserved", "budget_usd_per_month": 8000.0}),
    ("Qwen3-30B-A3B, 300 users, chat, TPOT under 30 ms",
     {"model": "Qwen/Qwen3-30B-A3B", "users": 300.0, "form": "chat", "tpot_s": 0.03}),
    ("DeepSeek-R1-Distill-Qwen-32B on H100 NVL, 500 ms TTFT, 40 ms TPOT, P95",
     {"model": "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "gpus": ("H100 NVL",), "ttft_s": 0.5, "tpot_s": 0.04, "objective": 0.95}),
    ("serve Llama-3.1-8B, 3000 output tokens per second, batch", {"model": "meta-llama/Llama-3.1-8B-Instruct",
     "output_tokens_per_s": 3000.0, "form": "batch"}),
    ("Foo-13B on H100, 3 req/s", {"model": "Foo-13B", "gpus": ("H100",), "requests_per_s": 3.0}),
    ("Qwen3-14B, fp8 KV cache, bf16, 7200 requests/hour", {"model": "Qwen/Qwen3-14B", "kv_cache_dtype": "fp8",
     "quantization": "bf16", "requests_per_s": 2.0}),
    ("Mistral-7B-Instruct-v0.3 with TensorRT-LLM 1.2.0 on A100-SXM4-80GB, PP 2",
     {"model": "mistralai/Mistral-7B-Instruct-v0.3", "engine": "tensorrt-llm", "engine_version": "1.2.0",
      "gpus": ("A100-SXM4-80GB",), "pp": 2}),
    ("Qwen3-32B, first token latency of 1 second, 4-bit", {"model": "Qwen/Qwen3-32B", "ttft_s": 1.0, "four_bit": True}),
    ("Qwen3-32B in us-east-1, on-demand, 5k tokens in, 1k tokens out", {"model": "Qwen/Qwen3-32B", "regions": ("us-east-1",),
     "price": "on-demand", "input_tokens": 5000.0, "output_tokens": 1000.0}),
    ("知识库问答 Qwen3-8B, 20路并发, 上下文 16k, 端到端延迟 5秒, 按需",
     {"model": "Qwen/Qwen3-8B", "form": "rag", "concurrency": 20.0, "max_model_len": 16_384, "e2e_s": 5.0, "price": "on-demand"}),
    ("GLM-4.5-Air, 每天 3亿 tokens, 8 张卡", {"model": "zai-org/GLM-4.5-Air", "tokens_per_day": 3e8, "gpu_count": 8}),
    ("Qwen3-0.6B 1 req/s, max model len 4096", {"model": "Qwen/Qwen3-0.6B", "requests_per_s": 1.0, "max_model_len": 4096}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meaning"), SENTENCES, ids=[text[:40] for text, _ in SENTENCES])
def test_a_sentence_means_what_it_says(text: str, meaning: dict[str, Any]) -> None:
    found = heard(text)
    assert _near(found.told) == _near(meaning)
    assert found.left == ()


def _near(told: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 9) if isinstance(value, float) else value for name, value in told.items()}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Qwen3-8B on H100, purple unicorns, 2 req/s", "purple unicorns"),
        ("Qwen3-8B, 8000 元 每月, 2 req/s", "8000 元"),
        ("Qwen3-8B, €500 a month, 2 req/s", "€500"),
        ("Qwen3-8B, 20 req/s, 40 req/s", "40 req/s (requests_per_s: told twice, 20.0 is taken)"),
        ("Qwen3-8B, 4 x H100 and 8 x L40S", "4 and 8 cards"),
        ("Qwen3-8B, GDPR compliant", "GDPR compliant"),
    ],
)
def test_what_is_not_understood_is_said(text: str, left: str) -> None:
    assert any(left in one for one in heard(text).left), heard(text)


def test_the_order_of_the_parts_does_not_matter() -> None:
    parts = ["Qwen2.5-72B on H100", "chat", "20 req/s", "1.2k in / 300 out", "TTFT 500 ms", "$8k a month"]
    assert heard(", ".join(parts)).told == heard(", ".join(reversed(parts))).told


def test_a_family_is_not_taken_for_its_smaller_sister() -> None:
    assert heard("Qwen2.5-7B").told["model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert heard("Qwen2.5-72B").told["model"] == "Qwen/Qwen2.5-72B-Instruct"
    assert heard("Llama-3-8B").told["model"] == "meta-llama/Meta-Llama-3-8B"


@given(st.text(max_size=80))
def test_any_text_is_read_or_left_and_never_fails(text: str) -> None:
    found = heard(text)
    assert isinstance(found.told, dict)


@given(st.integers(1, 999), st.sampled_from(["req/s", "rps", "qps", "requests per second"]))
def test_a_rate_is_the_number_that_was_said(rate: int, unit: str) -> None:
    assert heard(f"Qwen3-8B, {rate} {unit}, chat").told["requests_per_s"] == rate
