"""Headers of model files."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.checkpoint import gguf_header, index_params
from planner.model_facts import facts_from_config


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def key(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(one) for one in value)
    return text(name) + struct.pack("<II", 4, value)


def tensor(name: str, shape: tuple[int, ...], kind: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)


def gguf(*, tied: bool = False, kind: int = 12) -> bytes:
    keys = [
        key("general.architecture", "llama"), key("llama.block_count", 2), key("llama.embedding_length", 4096),
        key("llama.feed_forward_length", 11008), key("llama.attention.head_count", 32),
        key("llama.attention.head_count_kv", 32), key("llama.context_length", 4096),
        key("tokenizer.ggml.tokens", ["a", "b", "c"]),
    ]  # fmt: skip
    tensors = [tensor("token_embd.weight", (4096, 32000), kind), tensor("blk.0.attn_q.weight", (4096, 4096), 8)]
    if not tied:
        tensors.append(tensor("output.weight", (4096, 32000), 14))
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)


def test_a_header_gives_facts_and_bytes() -> None:
    found = gguf_header(gguf())
    assert found.embedding_bytes == 73_728_000  # llama.cpp logs 70.31 MiB for this embedding in q4_K
    assert found.device_bytes == 4096 * 4096 // 32 * 34 + 4096 * 32000 // 256 * 210
    model = facts_from_config("x", found.config)
    assert (model.hidden, model.kv_heads, model.vocab, len(model.layers), model.unknown) == (4096, 32, 3, 2, ())


def test_a_tied_embedding_is_on_the_device_too() -> None:
    found = gguf_header(gguf(tied=True))
    assert found.tied
    assert found.device_bytes == found.tensor_bytes


@given(st.integers(0, len(gguf()) - 1))
def test_a_cut_header_is_refused(size: int) -> None:
    with pytest.raises(ConfigError):
        gguf_header(gguf()[:size])


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(ConfigError):
        gguf_header(b"GGUF" + struct.pack("<IQQ", 3, 5, 5) + noise)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04", "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1), "GGUF version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "more than any file has"),
        (gguf(kind=77), "of type 77, which goodwatch does not know"),
    ],
)
def test_a_damaged_header_says_what_is_wrong(content: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        gguf_header(content)


@pytest.mark.parametrize(
    ("index", "params"),
    [
        ({"metadata": {"total_size": 16_060_522_496}}, 8_030_261_248.0),
        ({"metadata": {"total_parameters": 5, "total_size": 1}}, 5.0),
        ({"metadata": {}}, None),
        ({}, None),
    ],
)
def test_an_index_tells_the_parameters(index: dict[str, Any], params: float | None) -> None:
    assert index_params(index) == params
