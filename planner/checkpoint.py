"""What a model's own files tell: the index of safetensors, and the header of a GGUF file. Bytes in, facts out."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from goodwatch.core.errors import ConfigError

_MAGIC: Final = b"GGUF"
#: most keys, tensors, dimensions and array items that a header may claim
_MOST: Final = 4_000_000
#: GGUF value types that are one number: struct format
_SCALARS: Final[Mapping[int, str]] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
#: ggml types: name, elements of a block, bytes of a block (ggml-common.h)
GGML_TYPES: Final[Mapping[int, tuple[str, int, int]]] = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 20: ("iq4_nl", 32, 18), 23: ("iq4_xs", 256, 136),
    30: ("bf16", 1, 2), 39: ("mxfp4", 32, 17),
}  # fmt: skip
_CONFIG_KEYS: Final[Mapping[str, str]] = {
    "block_count": "num_hidden_layers", "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim", "context_length": "max_position_embeddings", "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size",
    "attention.sliding_window": "sliding_window", "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank", "leading_dense_block_count": "first_k_dense_replace",
    "expert_shared_count": "n_shared_experts", "vocab_size": "vocab_size",
}  # fmt: skip
#: GGUF's name of a model class → the class, and which of its layers keep a window only
_ARCHITECTURES: Final[Mapping[str, tuple[str, str]]] = {
    "llama": ("LlamaForCausalLM", ""), "qwen2": ("Qwen2ForCausalLM", ""), "qwen3": ("Qwen3ForCausalLM", ""),
    "qwen3moe": ("Qwen3MoeForCausalLM", ""), "gemma2": ("Gemma2ForCausalLM", "1:1"),
    "gemma3": ("Gemma3ForCausalLM", "5:1"), "gpt-oss": ("GptOssForCausalLM", "alternating"),
    "phi3": ("Phi3ForCausalLM", ""), "deepseek2": ("DeepseekV3ForCausalLM", ""), "glm4": ("Glm4ForCausalLM", ""),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A GGUF file by its header: facts in the words of a ``config.json``, and bytes of the tensors.

    ``embedding_bytes``: the token embedding, which llama.cpp leaves on the host; ``tied``: it is the output too.
    """

    config: Mapping[str, Any]
    tensor_bytes: int
    embedding_bytes: int
    tied: bool
    types: Mapping[str, int]

    @property
    def device_bytes(self) -> int:
        """Bytes on the device: a tied embedding is there as the output."""
        return self.tensor_bytes - (0 if self.tied else self.embedding_bytes)


class _Cursor:
    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def take(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        if self.at + size > len(self.content):
            raise ConfigError("GGUF header: ends in the middle; give more of the file")
        (value,) = struct.unpack_from("<" + form, self.content, self.at)
        self.at += size
        return value

    def count(self, what: str) -> int:
        value: int = self.take("Q")
        if value > _MOST:
            raise ConfigError(f"GGUF header: {value} {what} is more than any file has; the file is damaged")
        return value

    def text(self) -> str:
        size = self.count("characters")
        if self.at + size > len(self.content):
            raise ConfigError("GGUF header: ends in the middle; give more of the file")
        found = self.content[self.at : self.at + size].decode("utf-8", "replace")
        self.at += size
        return found

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY and depth < 2:
            inner, size = self.take("I"), self.count("items")
            return [self.value(inner, depth + 1) for _ in range(size)]
        raise ConfigError(f"GGUF header: value type {kind} is not known")


def gguf_header(content: bytes) -> GgufHeader:
    """The header of a GGUF file (version 2 or 3).

    Parameters
    ----------
    content
        The beginning of the file, long enough to hold its header (a few MiB, the vocabulary included).

    Raises
    ------
    ConfigError
        Not a GGUF file, of another version, damaged, cut short, or with a tensor type that is not known.
    """
    if content[:4] != _MAGIC:
        raise ConfigError("not a GGUF file: it does not begin with GGUF")
    cursor = _Cursor(content)
    cursor.at = 4
    version = cursor.take("I")
    if version not in (2, 3):
        raise ConfigError(f"GGUF version {version}: only 2 and 3 are read")
    tensors, keys = cursor.count("tensors"), cursor.count("keys")
    told = {cursor.text(): cursor.value(cursor.take("I")) for _ in range(keys)}
    sizes: dict[str, int] = {}
    types: dict[str, int] = {}
    for _ in range(tensors):
        name, size, kind = _tensor(cursor)
        sizes[name] = size
        types[kind] = types.get(kind, 0) + size
    tied = "output.weight" not in sizes
    return GgufHeader(_config(told, tied=tied), sum(sizes.values()), sizes.get("token_embd.weight", 0), tied, types)


def _tensor(cursor: _Cursor) -> tuple[str, int, str]:
    name, dimensions = cursor.text(), cursor.take("I")
    if dimensions > 8:
        raise ConfigError(f"GGUF header: tensor {name} has {dimensions} dimensions; the file is damaged")
    elements = 1
    for _ in range(dimensions):
        elements *= cursor.take("Q")
    kind = cursor.take("I")
    cursor.take("Q")  # offset in the file
    if kind not in GGML_TYPES:
        raise ConfigError(f"GGUF header: tensor {name} is of type {kind}, which goodwatch does not know")
    label, block, size = GGML_TYPES[kind]
    return name, -(-elements // block) * size, label


def _config(told: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    kind = str(told.get("general.architecture", "llama"))
    name, pattern = _ARCHITECTURES.get(kind, (kind, ""))
    found: dict[str, Any] = {"architectures": [name], "tie_word_embeddings": tied, "layer_pattern": pattern}
    for key, name in _CONFIG_KEYS.items():
        value = told.get(f"{kind}.{key}")
        if isinstance(value, list) and value:
            value = max(value)  # sizes that differ between layers: the largest
        if value is not None:
            found[name] = value
    if "kv_lora_rank" in found:
        found["qk_rope_head_dim"] = told.get(f"{kind}.rope.dimension_count", 64)
    tokens = told.get("tokenizer.ggml.tokens")
    if "vocab_size" not in found and isinstance(tokens, list):
        found["vocab_size"] = len(tokens)
    return found


def index_params(index: Mapping[str, Any], bytes_per_weight: float = 2.0) -> float | None:
    """Parameters of a checkpoint by its ``model.safetensors.index.json``; None where it does not tell."""
    told = index.get("metadata")
    if not isinstance(told, Mapping):
        return None
    count, size = told.get("total_parameters"), told.get("total_size")
    if isinstance(count, int | float) and count > 0:
        return float(count)
    return float(size) / bytes_per_weight if isinstance(size, int | float) and size > 0 else None
