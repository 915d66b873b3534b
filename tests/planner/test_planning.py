"""``goodwatch plan vram`` from flags and files to text and JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from goodwatch.app.planning import VramOptions, case_rows, model_of, request_of, vram
from goodwatch.commands.plan import plan
from goodwatch.core.errors import ConfigError
from tests.planner.cases import FILE, predicted
from tests.planner.test_checkpoint import gguf
from tests.planner.test_model_facts import LLAMA


def ran(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(plan, ["vram", *words])
    return found.exit_code, found.output


def test_a_ledger_is_printed_as_a_table_with_bars() -> None:
    code, text = ran("--model", "Qwen/Qwen3-8B", "--gpu", "H100 80GB", "--engine-version", "0.11.0")
    assert code == 0
    for word in ("weights", "activation peak", "KV cache", "█", "starts", "would print"):
        assert word in text


def test_a_refusal_exits_with_one_and_says_what_would_help() -> None:
    code, text = ran(
        "--model", "Qwen/Qwen3-32B", "--gpu", "H100", "--engine-version", "0.13", "--max-model-len", "32000"
    )
    assert code == 1
    assert "is refused" in text
    assert "--max-model-len 17408" in text


def test_json_holds_the_figures_with_their_intervals() -> None:
    code, text = ran("--model", "Qwen/Qwen3-8B", "--gpu", "L40S", "--json")
    found = json.loads(text)
    assert code == 0
    low, high = found["interval"]["kv_cache_gib"]
    assert low <= found["kv_cache_gib"] <= high
    assert {line["name"] for line in found["lines"]} >= {"weights", "activation peak", "outside PyTorch"}
    assert all(line["basis"] for line in found["lines"])
    assert found["gpu"]["source"]
    assert found["gpu"]["as_of"]


def test_cases_print_one_row_each() -> None:
    code, text = ran("--cases", str(FILE))
    rows = json.loads(text)
    assert code == 0
    assert len(rows) == 64
    keys = {"id", "weights_gib_per_gpu", "kv_cache_gib", "kv_tokens", "max_concurrency", "outcome", "interval"}
    assert all(keys <= set(row) for row in rows)
    assert rows[0] == predicted(rows[0]["id"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--model and --gpu"),
        (("--model", "x"), "--model and --gpu"),
        (("--model", "Qwen/Qwen3-8B", "--gpu", "H900"), "--gpu H900: unknown"),
        (("--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--engine", "vlm"), "--engine vlm: unknown; known are"),
        (("--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--engine-version", "new"), "is not a version"),
        (("--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "999999"), "is made for 40,960 tokens"),
        (("--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--gpu-memory-gib", "-3"), "outside 0.5 to 10000 GiB"),
        (
            ("--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--max-num-seqs", "512", "--max-num-batched-tokens", "64"),
            "a step holds a token of each",
        ),
        (
            ("--model", "Qwen/Qwen3-8B", "--gpu", "H100", "--engine", "llama.cpp", "--memory-fraction", "0.9"),
            "llama.cpp has no share of memory",
        ),
        (("--model", "Qwen/Qwen3-30B-A3B", "--gpu", "H100", "--ep", "8"), "there are 1 ranks to share the experts"),
        (("--cases", "nowhere.yaml"), "nowhere.yaml: No such file"),
    ],
)
def test_flags_that_must_be_mended_exit_with_two(words: tuple[str, ...], said: str) -> None:
    code, text = ran(*words)
    assert code == 2
    assert said in text


def test_a_card_that_is_not_listed_is_sized_by_its_memory() -> None:
    found, _ = vram(VramOptions("Qwen/Qwen3-8B", "my own card", gpu_memory_gib=30.0))
    assert found.pool is not None
    assert found.request.gpu.total_gib is not None
    assert found.request.gpu.total_gib.point == 30.0


def test_a_folder_with_a_config_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    index = {"metadata": {"total_size": 16_060_522_496}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    facts, told = model_of(str(tmp_path))
    assert (facts.hidden, facts.total_params, told) == (4096, 8_030_261_248.0, None)


def test_a_gguf_file_gives_the_bytes_of_its_tensors(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf())
    found, _ = vram(VramOptions(str(path), "RTX 3090", "llama.cpp", max_model_len=2048))
    device = 4096 * 4096 // 32 * 34 + 4096 * 32000 // 256 * 210
    assert found.weights.total.point == device
    assert found.weights.host_bytes == 73_728_000


@pytest.mark.parametrize(
    ("content", "said"), [("{", "is not JSON"), ("[]", "holds no JSON object"), ("{}", "hidden_size: not in")]
)
def test_a_broken_config_is_refused_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        model_of(str(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [("cases: 3", "holds no list"), ("cases: [3]", r"cases\[0\]: is no mapping"), ("a: [", "is not YAML")],
)
def test_a_broken_file_of_cases_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        case_rows(path)


def test_a_case_that_cannot_be_sized_has_nulls_and_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text("cases: [{id: a, engine: {name: vllm}, model: {id: nobody/none}}]")
    (row,) = case_rows(path)
    assert row["kv_cache_gib"] is None
    assert "unknown model" in row["reason"]
    assert row["outcome_certain"] is False


class Hub:
    """A hub that knows one model."""

    def config(self, name: str) -> dict[str, Any] | None:
        return LLAMA if name == "me/mine" else None


def test_a_hub_is_asked_only_for_what_is_nowhere_else() -> None:
    assert request_of(VramOptions("me/mine", "H100"), Hub()).model.source == "hub"
    with pytest.raises(ConfigError, match="unknown model"):
        request_of(VramOptions("me/other", "H100"), Hub())
