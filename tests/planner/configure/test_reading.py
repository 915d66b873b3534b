"""What is written is read back: commands, files, and the facts that engines tell of themselves."""

import json
import shlex

import pytest
from hypothesis import given, settings

from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Deployment
from planner.configure.forms import command, own_file
from planner.configure.reading import read_command, read_facts, read_file
from planner.configure.spelling import spelled
from planner.configure.values import Configuration
from planner.flags import NEWEST, exists, flags_of
from tests.planner.configure.cases import configurations, readable


@settings(max_examples=120, deadline=None)
@given(configurations())
def test_a_command_that_is_written_reads_back(one: Configuration) -> None:
    assert read_command(command(one), one.engine, one.engine_version) == readable(one)


@settings(max_examples=80, deadline=None)
@given(configurations())
def test_a_file_that_is_written_reads_back(one: Configuration) -> None:
    table = flags_of(one.engine)
    file, version = table.own_file, table.version(one.engine_version)
    if file is None or not exists(file.since, NEWEST, version):
        return
    if any(file.lacks(word, version) for word in spelled(one).argv):
        with pytest.raises(ConfigError, match="cannot hold"):
            own_file(one)
        return
    assert read_file(own_file(one), one.engine, one.engine_version, one.model) == readable(one)


@settings(max_examples=100, deadline=None)
@given(configurations())
def test_only_flags_of_the_version_are_written(one: Configuration) -> None:
    table, found = flags_of(one.engine), spelled(one)
    allowed = table.spellings(table.version(one.engine_version)) | {
        extra.argv[0] for extra in table.always if extra.argv
    }
    flags = [word for word in found.argv if word.startswith("-") and not word[1:].isdigit()]
    assert set(flags) <= allowed
    assert len([*flags]) == len({*flags}), "a flag is written once"


# The words are those of each engine's own documentation: docs.vllm.ai (serve), docs.sglang.ai (server arguments),
# TensorRT-LLM's trtllm-serve page, llama.cpp's tools/server/README.md, lmdeploy serve api_server --help.
@pytest.mark.parametrize(
    ("engine", "version", "text", "expected"),
    [
        (
            "vllm", "0.13.0", "vllm serve Qwen/Qwen3-32B -tp 4 --max-model-len=32768 --no-enable-prefix-caching --trust-remote-code",
            {"tp": 4, "max_model_len": 32768, "prefix_caching": False, "extra": (("--trust-remote-code", ""),)},
        ),
        (
            "vllm", "0.6.6",
            "python3 -m vllm.entrypoints.openai.api_server \\\n  --model Qwen/Qwen3-32B \\\n  --port 80 --enable-chunked-prefill False",
            {"chunked_prefill": False},
        ),
        (
            "vllm", "0.8.5", "vllm serve Qwen/Qwen3-32B --data-parallel-size 2 --tensor-parallel-size 4 --enable-expert-parallel",
            {"tp": 4, "dp": 2, "ep": 8},
        ),
        (
            "sglang", "0.5.6", "python -m sglang.launch_server --model Qwen/Qwen3-32B --tp 8 --dp 8 --enable-dp-attention --ep 8",
            {"dp": 8, "ep": 8},
        ),
        (
            "sglang", "0.5.23", "python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --disable-radix-cache --chunked-prefill-size -1",
            {"prefix_caching": False, "chunked_prefill": False},
        ),
        (
            "sglang", "0.5.23", "python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 8 --dp 4 --enable-dp-attention --ep 8",
            {"tp": 2, "dp": 4, "ep": 8},
        ),
        (
            "tensorrt-llm", "1.0.0", "trtllm-serve Qwen/Qwen3-32B --tp_size 2 --max_batch_size 64 --kv_cache_free_gpu_memory_fraction 0.8",
            {"tp": 2, "max_num_seqs": 64, "memory_fraction": 0.8},
        ),
        (
            "llama.cpp", "", "/usr/bin/llama-server -m Qwen/Qwen3-32B -c 32768 -np 4 -ngl 99 -ctk q8_0 -ctv q8_0",
            {"max_model_len": 8192, "max_num_seqs": 4, "kv_dtype": "q8_0", "extra": (("--n-gpu-layers", "99"),)},
        ),
        (
            "lmdeploy", "0.9.2", "lmdeploy serve api_server Qwen/Qwen3-32B --tp 2 --quant-policy 8 --session-len 8192",
            {"tp": 2, "kv_dtype": "int8", "max_model_len": 8192},
        ),
    ],
)  # fmt: skip
def test_commands_that_people_write_are_understood(
    engine: str, version: str, text: str, expected: dict[str, object]
) -> None:
    found = read_command(text, engine, version).told()
    assert {name: found[name] for name in found if name not in ("engine", "engine_version", "model")} == expected
    assert found["model"] == "Qwen/Qwen3-32B"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm serve 'Qwen", "check its quotes"),
        ("--max-model-len 3", "names no model"),
        ("vllm serve m --max-model-len many", "--max-model-len many: is no number"),
        ("vllm serve m --speculative-config '{'", "is not JSON"),
        ("vllm serve m --max-model-len -5", "max_model_len: -5 is outside"),
    ],
)
def test_a_broken_command_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_command(text, "vllm", "0.13.0")


@pytest.mark.parametrize(
    ("text", "said"), [("a: [", "is not YAML"), ("- a", "holds no settings"), ("tp: 1", "names no model")]
)
def test_a_broken_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_file(text, "vllm", "0.13.0")


def test_a_speculative_configuration_with_more_in_it_is_kept_whole() -> None:
    held = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    text = f"vllm serve m --speculative-config {shlex.quote(json.dumps(held))}"
    found = read_command(text, "vllm", "0.13.0")
    assert found.speculative_tokens is None
    assert found.extra == (("--speculative-config", json.dumps(held)),)


def deployment(engine: str, version: str, facts: dict[str, str]) -> Deployment:
    return Deployment(0.0, "t", "s", engine, version, "Qwen/Qwen3-32B", facts)


# Labels of vllm:cache_config_info as a live vLLM 0.12.0 wrote them (tests/collector/engines/data/vllm_0_12_0.prom).
def test_facts_of_a_page_are_read() -> None:
    facts = {
        "block_size": "32", "cache_dtype": "auto", "enable_prefix_caching": "True", "gpu_memory_utilization": "0.9",
        "num_gpu_blocks": "256", "sliding_window": "None", "max_model_len_tokens": "2048",
    }  # fmt: skip
    found = read_facts(deployment("vllm", "0.12.0", facts), "H100-SXM-80GB")
    assert found == Configuration(
        engine="vllm", engine_version="0.12.0", model="Qwen/Qwen3-32B", gpu="H100-SXM-80GB", block_tokens=32, kv_dtype="auto",
        prefix_caching=True, memory_fraction=0.9, max_model_len=2048,
    )  # fmt: skip


def test_arguments_that_sglang_returns_are_read() -> None:
    facts = {
        "tp_size": "8",
        "dp_size": "1",
        "mem_fraction_static": "0.82",
        "disable_radix_cache": "False",
        "kv_cache_dtype": "fp8_e4m3",
    }
    found = read_facts(deployment("sglang", "0.5.6", facts))
    assert (found.tp, found.memory_fraction, found.prefix_caching, found.kv_dtype) == (8, 0.82, True, "fp8_e4m3")


def test_what_is_not_told_stays_unknown() -> None:
    found = read_facts(deployment("vllm", "about 0.12", {"enable_prefix_caching": "None", "max_num_seqs": ""}))
    assert found.told() == {"engine": "vllm", "model": "Qwen/Qwen3-32B", "engine_version": "about 0.12"}
