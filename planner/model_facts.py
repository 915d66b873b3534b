"""The facts of a model that decide its memory, read from its ``config.json`` (or a row of the built-in catalogue)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from goodwatch.core.errors import ConfigError
from planner.architecture import ARCHITECTURES, Architecture

Mixer = Literal["full", "window", "state", "none"]
Forward = Literal["dense", "moe", "none"]

#: a size above this is a typing error, not a model
ABSURD: Final = 10**9


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention: sizes of the latent and of the parts of a head, in elements."""

    kv_rank: int
    rope_dim: int
    nope_dim: int | None = None
    v_dim: int | None = None
    q_rank: int | None = None
    index_dim: int | None = None  # key size of a sparse-attention indexer
    index_heads: int | None = None


@dataclass(frozen=True, slots=True)
class Moe:
    """Experts: how many there are, how many a token meets, and their width."""

    experts: int
    experts_per_token: int
    width: int
    shared_width: int = 0  # total width of the experts that every token meets


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent layer's fixed state per sequence.

    ``kind``: gdn (gated delta net), kda (Kimi delta attention), mamba2, mamba1, conv (short convolution).
    """

    kind: Literal["gdn", "kda", "mamba2", "mamba1", "conv"]
    key_heads: int = 0
    value_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    conv_taps: int = 4


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What must be known of a model to size it. Counts are elements; ``None`` is unknown."""

    name: str
    architecture: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_width: int
    vocab: int
    tied: bool
    max_positions: int
    layers: tuple[tuple[Mixer, Forward], ...]
    shape: Architecture = field(default_factory=Architecture)
    mla: Mla | None = None
    moe: Moe | None = None
    state: State | None = None
    window_tokens: int | None = None
    rotary_dim: int = 0
    wide_heads: tuple[int, int] | None = None  # (kv heads, head size) of full layers where the window layers differ
    draft_layers: int = 0  # multi-token-prediction layers that come with the model
    vision: tuple[int, int] | None = None  # layers and hidden size of the image encoder
    total_params: float | None = None
    quantisation: str | None = None  # as the configuration names it
    unknown: tuple[str, ...] = ()  # facts that were not given, in words
    source: str = ""

    @property
    def full_layers(self) -> int:
        """Layers whose KV cache grows with the context."""
        return sum(mixer == "full" for mixer, _ in self.layers)

    @property
    def window_layers(self) -> int:
        """Layers that keep the last ``window_tokens`` only."""
        return sum(mixer == "window" for mixer, _ in self.layers)

    @property
    def state_layers(self) -> int:
        """Layers with a fixed state per sequence."""
        return sum(mixer == "state" for mixer, _ in self.layers)

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return sum(forward == "moe" for _, forward in self.layers)


class _Reader:
    """Numbers of a configuration with the place of each in its error message."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self.name, self.config = name, config

    def number(self, *keys: str) -> int | None:
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 16 * ABSURD:
                raise ConfigError(f"{self.name}: {key}: {value!r} is not a count")
            return value
        return None

    def needed(self, *keys: str) -> int:
        value = self.number(*keys)
        if not value:
            raise ConfigError(
                f"{self.name}: {keys[0]}: not in the configuration; goodwatch cannot size this model without it"
            )
        return value


def facts_from_config(name: str, config: Mapping[str, Any], source: str = "") -> ModelFacts:
    """Facts of a model from the content of its ``config.json``.

    Parameters
    ----------
    name
        How the model is called in messages.
    config
        The parsed file; a model with images may keep the text part under ``text_config``. A row of the catalogue has
        the same keys, and ``total_params_b`` beside them.
    source
        Where it was read, for the report.

    Raises
    ------
    ConfigError
        A size that cannot be done without is missing or not a count.
    """
    text = {**config, **config.get("text_config", {}), **config.get("llm_config", {})}
    read = _Reader(name, text)
    architecture = str(config.get("architecture") or (config.get("architectures") or ["unknown"])[0])
    shape = ARCHITECTURES.get(architecture)
    unknown = [] if shape else [f"architecture {architecture} is not known; taken as a plain decoder"]
    hidden, heads = read.needed("hidden_size", "n_embd"), read.needed("num_attention_heads", "n_head")
    layers, doubts = _layers(read, shape or Architecture())
    mla = _mla(read)
    if mla is not None and mla.nope_dim is None:
        unknown.append("sizes of the attention heads (qk_nope_head_dim, v_head_dim)")
    head_dim = read.number("head_dim") or hidden // heads
    wide = (read.number("num_global_key_value_heads"), read.number("global_head_dim"))
    total = text.get("total_params_b")
    return ModelFacts(
        name=name, architecture=architecture, hidden=hidden, heads=heads,
        kv_heads=read.number("num_key_value_heads") or heads, head_dim=head_dim,
        ffn_width=read.number("intermediate_size", "n_inner") or (0 if "num_experts" in text else 4 * hidden),
        vocab=read.needed("vocab_size"), tied=bool(text.get("tie_word_embeddings", False)),
        max_positions=read.needed("max_position_embeddings", "n_positions"), layers=layers,
        shape=shape or Architecture(attention_bias_by_config=True), mla=mla, moe=_moe(read), state=_state(read),
        window_tokens=read.number("sliding_window", "attention_chunk_size"),
        rotary_dim=_rotary(read, head_dim, mla), wide_heads=(wide[0], wide[1]) if wide[0] and wide[1] else None,
        draft_layers=read.number("mtp_layers", "num_nextn_predict_layers") or 0, vision=_vision(config),
        total_params=float(total) * 1e9 if total else None, quantisation=_quantisation(config),
        unknown=(*unknown, *doubts), source=source,
    )  # fmt: skip


def _quantisation(config: Mapping[str, Any]) -> str | None:
    """The checkpoint's own quantisation in the words of ``planner.quantisation``, where it is one of them."""
    told = config.get("quantization_config")
    if not isinstance(told, Mapping):
        return None
    method, bits = str(told.get("quant_method", "")), told.get("bits")
    plain = {"fp8": "fp8", "awq": "awq-int4", "mxfp4": "mxfp4", "bitsandbytes": "bnb-int4", "modelopt": "nvfp4"}
    if method == "gptq":
        return "gptq-int8" if bits == 8 else "gptq-int4"
    return plain.get(method, method or None)


def _rotary(read: _Reader, head_dim: int, mla: Mla | None) -> int:
    share = read.config.get("partial_rotary_factor", 1.0)
    return read.number("rotary_dim") or (mla.rope_dim if mla else int(head_dim * float(share)))


def _vision(config: Mapping[str, Any]) -> tuple[int, int] | None:
    told = config.get("vision_config")
    if isinstance(told, Mapping):
        layers, hidden = told.get("num_hidden_layers", told.get("depth", 24)), told.get("hidden_size", 1024)
        return (int(layers), int(hidden))
    if "vision_layers" in config:
        return (int(config["vision_layers"]), int(config["vision_hidden_size"]))
    return None


def _mla(read: _Reader) -> Mla | None:
    rank = read.number("kv_lora_rank")
    if not rank:
        return None
    return Mla(
        rank, read.needed("qk_rope_head_dim"), read.number("qk_nope_head_dim"), read.number("v_head_dim"),
        read.number("q_lora_rank"), read.number("index_head_dim"), read.number("index_n_heads"),
    )  # fmt: skip


def _moe(read: _Reader) -> Moe | None:
    experts = read.number("num_experts", "n_routed_experts", "num_local_experts")
    if not experts:
        return None
    width = read.number("moe_intermediate_size") or read.needed("intermediate_size")
    shared = read.number("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                         "shared_intermediate_size") or (read.number("n_shared_experts") or 0) * width  # fmt: skip
    return Moe(experts, read.needed("num_experts_per_tok", "top_k"), width, shared)


def _state(read: _Reader) -> State | None:
    taps = read.number("linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv", "conv_L_cache") or 4
    if read.number("linear_num_value_heads"):
        kind: Literal["gdn", "kda"] = "kda" if read.number("kv_lora_rank") else "gdn"
        return State(kind, read.needed("linear_num_key_heads"), read.needed("linear_num_value_heads"),
                     read.needed("linear_key_head_dim"), read.needed("linear_value_head_dim"), taps)  # fmt: skip
    if read.number("mamba_num_heads"):
        return State("mamba2", read.number("n_groups") or 1, read.needed("mamba_num_heads"),
                     read.needed("ssm_state_size"), read.needed("mamba_head_dim"), taps)  # fmt: skip
    if read.number("mamba_d_state"):
        inner = (read.number("mamba_expand") or 2) * read.needed("hidden_size")
        return State("mamba1", read.number("mamba_dt_rank") or 256, inner, read.needed("mamba_d_state"), 1, taps)
    if read.number("conv_L_cache"):
        return State("conv", value_heads=read.needed("hidden_size"), value_dim=1, conv_taps=taps)
    return None


def _layers(read: _Reader, shape: Architecture) -> tuple[tuple[tuple[Mixer, Forward], ...], list[str]]:
    """Kind of every layer in order, and what had to be taken for granted."""
    count = read.needed("num_hidden_layers", "n_layer")
    told = read.config.get("layer_types")
    full = read.number("num_full_attention_layers")
    other: Mixer = "state" if _state(read) else "window"
    doubts: list[str] = []
    if isinstance(told, list) and len(told) == count:
        kinds: list[Mixer] = [_kind(str(one), other) for one in told]
    elif shape.layers == "one":
        return _single(read, count), doubts
    elif full is not None:
        kinds = _spread(count, full, other)
    else:
        kinds, doubts = _patterned(read, count)
    return tuple(zip(kinds, _forwards(read, count), strict=True)), doubts


def _kind(told: str, other: Mixer) -> Mixer:
    return "full" if told == "full_attention" else "window" if "sliding" in told or "chunked" in told else other


def _spread(count: int, full: int, other: Mixer) -> list[Mixer]:
    """``full`` layers spread evenly, the last layer of each stretch."""
    return ["full" if (i + 1) * full // count > i * full // count else other for i in range(count)]


def _patterned(read: _Reader, count: int) -> tuple[list[Mixer], list[str]]:
    """Layers of a model that names its window but not the kind of each layer."""
    pattern = str(read.config.get("layer_pattern", ""))
    if read.number("attention_chunk_size"):
        return _spread(count, count // 4, "window"), []
    if "5:1" in pattern:
        return _spread(count, count // 6, "window"), []
    if "1:1" in pattern or "alternating" in pattern:
        return _spread(count, count // 2, "window"), []
    return ["full"] * count, []


def _forwards(read: _Reader, count: int) -> list[Forward]:
    if not read.number("num_experts", "n_routed_experts", "num_local_experts"):
        return ["dense"] * count
    first = read.number("first_k_dense_replace") or 0
    step = read.number("interleave_moe_layer_step", "expert_layer_period", "decoder_sparse_step") or 1
    return ["dense" if i < first or (i + 1) % step else "moe" for i in range(count)]


def _single(read: _Reader, count: int) -> tuple[tuple[Mixer, Forward], ...]:
    """Layers that are either a mixer or a feed-forward (Nemotron-H)."""
    pattern = read.config.get("hybrid_override_pattern")
    signs: Mapping[str, tuple[Mixer, Forward]] = {
        "M": ("state", "none"), "*": ("full", "none"), "-": ("none", "dense"), "E": ("none", "moe")
    }  # fmt: skip
    if isinstance(pattern, str) and len(pattern) == count and set(pattern) <= set(signs):
        return tuple(signs[sign] for sign in pattern)
    full, state = read.number("num_full_attention_layers") or 0, read.number("num_mamba_layers") or 0
    moe = read.number("num_moe_layers") or 0
    rest = max(0, count - full - state - moe)
    return (signs["*"],) * full + (signs["M"],) * state + (signs["E"],) * moe + (signs["-"],) * rest
