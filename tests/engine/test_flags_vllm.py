"""The generator's flags held against the argument parser of a real vLLM.

Deselected unless GOODWATCH_ENGINE_TEST=1 (``make engine-test``). GOODWATCH_ENGINE_DIR names the engine's folder.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from planner.configure.spelling import spelled
from planner.configure.values import Configuration
from planner.flags import EngineFlags, flags_of
from planner.version import Version
from tests.engine.setup import VERSION, is_ready

pytestmark = pytest.mark.engine

TABLE = flags_of("vllm")
PARSER = Path(__file__).with_name("vllm_parser.py")


def configurations() -> list[Configuration]:
    """Every setting of the table alone, with each of its values, and all together."""
    told: list[dict[str, Any]] = [{}, {"tp": 4, "pp": 2, "dp": 2, "ep": 8}]
    numbers = (
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_queued_requests",
        "block_tokens",
        "max_loras",
    )
    told += [{name: 32} for name in numbers] + [{"max_lora_rank": 64}, {"memory_fraction": 0.85}]
    told += [{name: on} for name in ("prefix_caching", "chunked_prefill", "eager") for on in (True, False)]
    told += [{"kv_dtype": name} for name in _values("kv_dtype")]
    told += [{"quantisation": name} for name in _values("quantisation")]
    told += [{"scheduling_policy": name} for name in _values("scheduling_policy")]
    told += [{"speculative_method": "ngram", "speculative_tokens": 4}]
    told += [{"speculative_method": "eagle3", "speculative_tokens": 3, "draft_model": "me/draft"}]
    told += [{"lora_adapters": ("a=/x", "b=/y")}, {"lora_adapters": ("a=/x",), "max_loras": 2, "max_lora_rank": 32}]
    told.append({name: value for one in told[1:-3] for name, value in one.items()})
    return [Configuration(engine="vllm", engine_version=VERSION, model="me/model", **one) for one in told]


def _values(setting: str) -> list[str]:
    version = TABLE.version(VERSION)
    rows = [row for row in TABLE.in_version(version) if row.setting == setting]
    now = [value for row in rows for value, word in row.values.items() if word.since <= version.low <= word.until]
    return [*now, *(value for row in rows for value in row.implied)]


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    """What the parser says of itself and of every configuration's arguments."""
    engine_dir = Path(os.environ.get("GOODWATCH_ENGINE_DIR", ".engine-test")).resolve()
    assert is_ready(engine_dir), f"{engine_dir}: no vLLM there; run `python -m tests.engine.setup {engine_dir}`"
    asked = [[*spelled(one).run[2:], *spelled(one).argv] for one in configurations()]
    done = subprocess.run(
        [engine_dir / "venv/bin/python", PARSER], input=json.dumps(asked), check=False, capture_output=True, text=True,
        timeout=300, cwd=engine_dir, env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["version"].startswith(VERSION)
    return said


def test_every_flag_of_the_table_exists(answer: dict[str, Any]) -> None:
    missing = TABLE.spellings(TABLE.version(VERSION)) - set(answer["options"])
    assert missing == frozenset()


def test_every_flag_that_the_table_says_is_gone_is_gone(answer: dict[str, Any]) -> None:
    gone = _ever(TABLE) - TABLE.spellings(TABLE.version(VERSION))
    assert gone & set(answer["options"]) == set()
    assert "--speculative-model" in gone


def _ever(table: EngineFlags) -> set[str]:
    return {flag for release in table.read_in for flag in table.spellings(Version(release, release, release))}


def test_every_value_of_the_table_is_a_choice_of_the_parser(answer: dict[str, Any]) -> None:
    version = TABLE.version(VERSION)
    for row in TABLE.in_version(version):
        choices = answer["options"][row.flag]["choices"] if row.flag else []
        words = {word.text for word in row.values.values() if word.since <= version.low <= word.until}
        assert not choices or words <= set(choices), row.setting


def test_the_parser_takes_every_command_that_is_written(answer: dict[str, Any]) -> None:
    refused = {
        str(spelled(one).argv): said["error"]
        for one, said in zip(configurations(), answer["parsed"], strict=True)
        if not said["ok"]
    }
    assert refused == {}


def test_what_the_parser_understands_is_what_was_meant(answer: dict[str, Any]) -> None:
    meant = {
        "tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "max_model_len": "max_model_len",
        "max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens", "memory_fraction": "gpu_memory_utilization",
        "max_queued_requests": "max_num_queued_reqs", "prefix_caching": "enable_prefix_caching", "eager": "enforce_eager",
        "chunked_prefill": "enable_chunked_prefill", "block_tokens": "block_size", "max_loras": "max_loras", "max_lora_rank": "max_lora_rank",
        "scheduling_policy": "scheduling_policy",
    }  # fmt: skip
    for one, said in zip(configurations(), answer["parsed"], strict=True):
        for setting, value in one.told().items():
            if setting in meant:
                assert said["values"][meant[setting]] == str(value), setting
        if one.ep is not None:
            assert said["values"]["enable_expert_parallel"] == "True"


def test_an_argument_that_does_not_exist_is_refused_by_the_parser() -> None:
    """The check itself can fail: else it would prove nothing."""
    engine_dir = Path(os.environ.get("GOODWATCH_ENGINE_DIR", ".engine-test")).resolve()
    done = subprocess.run(
        [engine_dir / "venv/bin/python", PARSER], input=json.dumps([["me/model", "--speculative-model", "x"]]), check=True,
        capture_output=True, text=True, timeout=300, cwd=engine_dir,
    )  # fmt: skip
    assert json.loads(done.stdout)["parsed"][0]["ok"] is False
