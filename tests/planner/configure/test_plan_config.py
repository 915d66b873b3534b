"""``goodwatch plan config``: what it fills in, what it writes, and what it says when it cannot."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from goodwatch.app.plan_config import configuration_of, plan
from goodwatch.commands.plan_config import config
from goodwatch.core.errors import ConfigError
from planner.configure.reading import read_command
from planner.configure.values import Configuration


def run(*words: str) -> Result:
    return CliRunner().invoke(config, [*words])


def asked(**told: Any) -> Configuration:
    words = {"engine": "vllm", "engine_version": "0.13.0", "model": "Qwen/Qwen3-32B", "gpu": "H100 80GB"}
    return Configuration(**(words | told))


def test_the_fewest_cards_that_start_are_taken() -> None:
    assert plan(asked()).configuration.tp is None  # one card
    found = plan(asked(model="meta-llama/Llama-3.1-70B-Instruct"))
    assert found.configuration.tp == 4  # 141 GB of weights leave less than 8,192 tokens on two
    assert "the fewest cards" in found.remarks[0]


def test_the_longest_request_that_surely_starts_is_taken() -> None:
    found = plan(asked(tp=1, max_model_len=40960))
    assert found.ledger is not None
    assert found.configuration.max_model_len is not None
    assert 8192 < found.configuration.max_model_len < 40960
    assert found.ledger.outcome == "ok"
    assert found.ledger.certain


def test_a_length_that_was_asked_for_is_kept_where_more_cards_hold_it() -> None:
    found = plan(asked(max_model_len=40960)).configuration
    assert (found.tp, found.max_model_len) == (2, 40960)


def test_what_was_told_is_never_changed() -> None:
    found = plan(asked(tp=2, max_num_seqs=64, kv_dtype="fp8", prefix_caching=False)).configuration
    assert (found.tp, found.max_num_seqs, found.kv_dtype, found.prefix_caching) == (2, 64, "fp8", False)


def test_a_model_that_fits_nowhere_is_refused_with_what_is_smaller() -> None:
    with pytest.raises(ConfigError, match=r"does not start on 8 x H100.*weights in fp8 are smaller"):
        plan(asked(model="meta-llama/Llama-3.1-405B-Instruct"))


# deepseek-ai/DeepSeek-V3 is published in FP8 (its config.json: quantization_config, quant_method fp8)
@pytest.mark.parametrize("told", [None, "fp8"])
def test_weights_that_a_model_is_published_in_need_no_flag(told: str | None) -> None:
    found = plan(asked(model="deepseek-ai/DeepSeek-V3", gpu="H200", quantisation=told))
    assert found.ledger is not None
    assert found.ledger.request.scheme.name == "fp8"
    assert found.configuration.quantisation is None
    assert any("fp8" in remark for remark in found.remarks)


def test_without_a_version_it_is_written_for_the_newest_that_was_read() -> None:
    found = plan(asked(engine_version="", tp=2))
    assert found.configuration.engine_version == "0.32.0"
    assert "no version was told" in found.remarks[0]


def test_the_command_reads_back_to_the_plan() -> None:
    found = run(
        "--model",
        "Qwen/Qwen3-32B",
        "--gpu",
        "H100 80GB",
        "--engine-version",
        "0.13.0",
        "--tp",
        "2",
        "--kv-cache-dtype",
        "fp8",
    )
    assert found.exit_code == 0, found.output
    assert read_command(found.output, "vllm", "0.13.0").told() == {
        "engine": "vllm", "model": "Qwen/Qwen3-32B", "engine_version": "0.13.0", "tp": 2, "kv_dtype": "fp8",
    }  # fmt: skip


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "lmdeploy"])
def test_every_engine_is_written_for_kubernetes(engine: str) -> None:
    found = run("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--engine", engine, "--tp", "2", "--form", "kubernetes")
    assert found.exit_code == 0, found.output
    kinds = [one["kind"] for one in yaml.safe_load_all(found.output)]
    assert kinds[-2:] == ["Deployment", "Service"]


def test_cards_of_another_maker_are_asked_for_by_its_name() -> None:
    found = run(
        "--model", "Qwen/Qwen3-32B", "--gpu", "910B", "--engine", "vllm-ascend", "--tp", "2", "--form", "kubernetes"
    )
    assert "huawei.com/Ascend910: 2" in found.output


def test_it_is_written_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "engine.yaml"
    found = run("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--form", "yaml", "--out", str(out))
    assert (found.exit_code, found.output) == (0, "")
    assert "max-model-len" in yaml.safe_load(out.read_text())


def test_settings_and_remarks_are_printed_as_json() -> None:
    found = json.loads(run("--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--json").output)
    assert found["settings"]["engine"] == "vllm"
    assert found["text"].startswith("#!/usr/bin/env bash")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nobody/none", "--gpu", "H100"], "unknown model"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H1000"], "--gpu H1000: unknown"),
        (["--model", "Qwen/Qwen3-32B"], "--gpu: is missing"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--engine", "tgi"], "--engine tgi"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--tp", "-1"], "tp: -1 is outside"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--tp", "3"], "does not divide the 64 attention heads"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--engine-version", "new"], "is not a version"),
        (
            ["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--kv-cache-dtype", "fp3"],
            "--kv-cache-dtype fp3: cannot be sized",
        ),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--extra", "speed"], "--extra speed: is no flag"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--max-model-len", "9999999"], "is made for"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--out", "/nowhere/x"], "--out /nowhere/x"),
        (["--model", "Qwen/Qwen3-32B", "--gpu", "M2 Ultra", "--form", "kubernetes"], "M2 Ultra"),
    ],
)
def test_what_must_be_mended_is_said(words: list[str], said: str) -> None:
    found = run(*words)
    assert found.exit_code == 2
    assert said in found.output


def test_flags_can_be_written_without_being_sized() -> None:
    found = run(
        "--model", "/models/mine", "--engine", "sglang", "--engine-version", "0.5.6", "--tp", "2", "--unchecked"
    )
    assert found.exit_code == 0
    assert "--tensor-parallel-size 2" in found.output


def test_extra_flags_are_taken_in_both_ways_of_writing() -> None:
    found = configuration_of({"engine": "vllm", "model": "m", "extra": ["--a=1", "--b 2 3", "--c"]})
    assert found.extra == (("--a", "1"), ("--b", "2 3"), ("--c", ""))
