"""Facts of models: catalogue, config.json, and what is refused."""

from typing import Any

import pytest

from goodwatch.core.errors import ConfigError
from planner.catalogue import known_model, model_names
from planner.model_facts import facts_from_config
from planner.tensors import active_params, text_params
from planner.weights import vision_params

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}  # fmt: skip


def test_a_config_of_a_folder_gives_the_facts_of_the_catalogue() -> None:
    told, known = facts_from_config("x", LLAMA), known_model("meta-llama/Llama-3.1-8B-Instruct")
    assert text_params(told) == text_params(known) == 8_030_261_248  # model card: 8.03B


# parameters as the models' cards or checkpoints state them
@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("Qwen/Qwen3-30B-A3B", 30.53e9, 3.35e9),
        ("Qwen/Qwen3-235B-A22B", 235.09e9, 22.2e9),
        ("deepseek-ai/DeepSeek-R1", 671.03e9, 37.6e9),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.70e9, 12.88e9),
        ("openai/gpt-oss-120b", 116.83e9, 5.8e9),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.58e9, 3.58e9),
        ("ai21labs/AI21-Jamba-1.5-Mini", 51.57e9, 12.1e9),
    ],
)
def test_total_and_active_parameters_of_experts_are_two_numbers(name: str, total: float, active: float) -> None:
    model = known_model(name)
    assert text_params(model) == pytest.approx(total, rel=0.002)
    assert active_params(model) == pytest.approx(active, rel=0.01)


def test_tensors_add_up_to_the_parameters_that_the_models_state() -> None:
    """Over the catalogue: text, image and draft parts are the stated total within 1 % for nine of ten models."""
    off = []
    for name in model_names():
        try:
            model = known_model(name)
        except ConfigError:
            continue  # no sizes are published
        assert model.total_params is not None
        counted = text_params(model) + vision_params(model)
        missing = 1 - counted / model.total_params
        off.append(abs(missing) if not model.draft_layers else max(0.0, abs(missing) - 0.035))
    assert sum(one < 0.01 for one in off) >= 0.9 * len(off)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "qwen/qwen3-32b", "QWEN3-32B"])
def test_a_model_is_found_however_it_is_written(name: str) -> None:
    assert known_model(name).name == "Qwen/Qwen3-32B"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Qwen/Qwen3-33B", "unknown model; did you mean"),
        ("Llama", "fits several models"),
        ("deepseek-ai/DeepSeek-V4-Flash", "no sizes of this model; give its config.json"),
        ("", "fits several models"),
    ],
)
def test_a_model_that_is_not_known_is_refused_with_what_is_near(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        known_model(name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "hidden_size: not in the configuration"),
        ({"num_hidden_layers": -3}, "num_hidden_layers: -3 is not a count"),
        ({"vocab_size": "many"}, "vocab_size: 'many' is not a count"),
        ({"num_attention_heads": True}, "num_attention_heads: True is not a count"),
        ({"num_experts": 8}, "num_experts_per_tok: not in the configuration"),
    ],
)
def test_a_config_without_a_size_is_refused_by_its_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        facts_from_config("x", {**LLAMA, **change})


def test_an_unknown_class_is_named_and_not_guessed_silently() -> None:
    model = facts_from_config("x", {**LLAMA, "architectures": ["NewForCausalLM"]})
    assert model.unknown == ("architecture NewForCausalLM is not known; taken as a plain decoder",)


def test_the_text_part_of_a_model_with_images_is_read() -> None:
    nested = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "text_config": LLAMA,
        "vision_config": {"depth": 32},
    }
    assert facts_from_config("x", nested).vision == (32, 1024)


def test_layer_kinds_follow_what_the_config_lists() -> None:
    types = ["sliding_attention", "full_attention"] * 16
    model = facts_from_config("x", {**LLAMA, "layer_types": types, "sliding_window": 128})
    assert (model.full_layers, model.window_layers) == (16, 16)


@pytest.mark.parametrize(
    ("method", "name"), [({"quant_method": "gptq", "bits": 8}, "gptq-int8"), ({"quant_method": "fp8"}, "fp8")]
)
def test_the_checkpoints_own_quantisation_is_read(method: dict[str, Any], name: str) -> None:
    assert facts_from_config("x", {**LLAMA, "quantization_config": method}).quantisation == name
