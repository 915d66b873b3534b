"""Weights by card and engine by load, as the tables say, each with source and date."""

from pathlib import Path

import pytest
import yaml

from goodwatch.core.errors import ConfigError
from planner.catalogue import accelerators, engine_budgets
from planner.choices.rules import Load, engine_choices, quantisations, vendor_of
from planner.gpu import Gpu, chosen
from planner.quantisation import KV_BYTES, SCHEMES

FOLDER = Path(__file__).parents[3] / "planner/choices"


def card(name: str) -> Gpu:
    return chosen(name, accelerators())


# vLLM documentation, supported hardware: FP8 W8A8 from Ada (8.9) on, INT8 W8A8 from Turing, Marlin from Ampere
@pytest.mark.parametrize(
    ("name", "engine", "goal", "scheme"),
    [
        ("H100", "vllm", "quality", "fp8"),
        ("B200", "vllm", "quality", "fp8"),
        ("B200", "vllm", "fit", "nvfp4"),
        ("L40S", "sglang", "quality", "fp8"),
        ("A100 80GB", "vllm", "quality", "int8"),
        ("A100 80GB", "vllm", "fit", "awq-int4"),
        ("T4", "vllm", "quality", "awq-int4"),
        ("L4", "llama.cpp", "quality", "gguf-q4_k_m"),
        ("MI300X", "vllm", "quality", "fp8"),
        ("910B", "vllm-ascend", "quality", "int8"),
    ],
)
def test_weights_go_by_card(name: str, engine: str, goal: str, scheme: str) -> None:
    first = quantisations(card(name), engine, goal)[0]
    assert first.scheme == scheme
    assert first.source
    assert first.as_of


def test_a_card_of_no_row_has_no_answer() -> None:
    assert quantisations(Gpu("mine", None)) == ()


def test_a_scheme_is_named_once() -> None:
    for name in ("A100 80GB", "H100", "B200"):
        found = [one.scheme for one in quantisations(card(name), goal="fit")]
        assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("name", "load", "engine"),
    [
        ("H100", Load(), "vllm"),
        ("H100", Load(shared_ratio=0.6), "sglang"),
        ("H100", Load(shared_ratio=0.1), "vllm"),
        ("H100", Load(concurrency=2000), "tensorrt-llm"),
        ("MI300X", Load(concurrency=2000), "vllm"),
        ("L4", Load(place="edge"), "llama.cpp"),
        ("A100 80GB", Load(wish="awq"), "lmdeploy"),
        ("910B", Load(), "vllm-ascend"),
    ],
)
def test_engines_go_by_load(name: str, load: Load, engine: str) -> None:
    assert engine_choices(card(name), load)[0].engine == engine


def test_rows_name_what_exists_and_say_where_it_is_from() -> None:
    for row in yaml.safe_load((FOLDER / "quantisation.yaml").read_text())["rows"]:
        assert row["scheme"] in SCHEMES
        assert row["kv_dtype"] in KV_BYTES
        assert row["source"]
        assert row["as_of"]
    for row in yaml.safe_load((FOLDER / "engines.yaml").read_text())["rows"]:
        assert row["engine"] in engine_budgets()
        assert row["source"]


def test_makers_of_cards_that_containers_cannot_get_are_refused() -> None:
    assert vendor_of("NVIDIA").kubernetes == "nvidia.com/gpu"
    with pytest.raises(ConfigError, match="cards of Apple: how containers get them is not known"):
        vendor_of("Apple")
