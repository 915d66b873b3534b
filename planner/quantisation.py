"""How many bits each class of tensor takes under each scheme. Data: one row a scheme, with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Final

from goodwatch.core.errors import ConfigError

#: classes of tensors, in the order of the report
CLASSES: Final = (
    "embedding",
    "head",
    "attention",
    "latent",
    "state",
    "dense",
    "expert",
    "router",
    "norm",
    "vision",
    "copy",
)
_LINEAR: Final = ("attention", "latent", "state", "dense", "expert")
_BLOCKS: Final = ("dense", "expert")


@dataclass(frozen=True, slots=True, eq=False)  # one object a scheme: compared and hashed by identity
class Scheme:
    """Bits per weight, scales included, by class; a class that is not listed stays at 16 bit.

    ``low``/``high`` bound the mean bits of the listed classes where checkpoints of one name differ.
    """

    name: str
    bits: Mapping[str, float] = field(default_factory=dict)
    low: float = 1.0
    high: float = 1.0
    row_bytes: float = 0.0  # bytes of scales per output row of a quantised tensor
    edges_16: bool = False  # first and last layer stay at 16 bit
    norm_bits: float = 16.0
    expert_round: int = 0  # experts' input width is padded to a multiple of this
    gguf: bool = False
    richer: float | None = None  # bits of the tensors that a K-quant mixture keeps finer
    source: str = ""


def _same(bits: float, classes: tuple[str, ...] = _LINEAR) -> Mapping[str, float]:
    return MappingProxyType(dict.fromkeys(classes, bits))


def _gguf(name: str, bits: float, *, richer: float | None = None, low: float = 1.0, high: float = 1.0) -> Scheme:
    every = _same(bits, (*_LINEAR, "embedding", "head"))
    return Scheme(
        name, every, low, high, norm_bits=32, gguf=True, richer=richer, source="block layouts of ggml-common.h"
    )


_GROUP_128: Final = 4 + 16 / 128 + 4 / 128  # AutoAWQ, GPTQ: one fp16 scale and one 4-bit zero per 128 weights

_ROWS: Final = (
    Scheme("bf16", source="two bytes each"),
    Scheme("fp8", _same(8), row_bytes=4, low=0.99, high=1.02, source="scales per row or per 128 x 128 block"),
    Scheme("fp8-mlp-only", _same(8, _BLOCKS), row_bytes=4, low=0.99, high=1.03, edges_16=True,
           source="FBGEMM checkpoints: attention, first and last layer stay at 16 bit"),
    Scheme("int8", _same(8), row_bytes=4, low=0.995, high=1.015, source="compressed-tensors, SmoothQuant: scale per row"),
    Scheme("awq-int4", _same(_GROUP_128), low=0.99, high=1.10, source="AutoAWQ, groups of 128; 1.08 with groups of 32"),
    Scheme("awq-int4-g32", _same(4 + 16 / 32, _BLOCKS), low=0.93, high=1.03,
           source="llm-compressor, groups of 32, attention left at 16 bit"),
    Scheme("gptq-int4", _same(_GROUP_128), low=0.99, high=1.10, source="GPTQ, groups of 128; 1.08 with groups of 32"),
    Scheme("gptq-int8", _same(8 + 16 / 128), low=0.99, high=1.04, source="GPTQ, groups of 128"),
    Scheme("int4", _same(4 + 16 / 32, ("expert",)), low=0.97, high=1.05,
           source="compressed-tensors pack-quantized, groups of 32, routed experts only (Kimi K2)"),
    Scheme("bnb-int4", _same(4 + 32 / 64), low=0.92, high=1.02, source="NF4, one fp32 scale per 64; 4.13 when nested"),
    # ModelOpt quantises projections of recurrent layers, llm-compressor leaves them: half way, and the interval both
    Scheme("nvfp4", MappingProxyType({**_same(4 + 8 / 16, (*_BLOCKS, "attention")), "state": (4.5 + 16) / 2},),
           low=0.9, high=1.09, source="one fp8 scale per 16; latent attention stays at 16 bit"),
    Scheme("mxfp4", _same(4 + 8 / 32, ("expert",)), low=0.97, high=1.03, expert_round=256,
           source="OCP MX: one 8-bit scale per 32; kernels pad the experts' input to 256"),
    Scheme("fp4-experts", MappingProxyType({**_same(8), "expert": 4.25}), low=0.94, high=1.06,
           source="experts in MXFP4, the other layers in fp8"),
    _gguf("gguf-f16", 16),
    _gguf("gguf-q8_0", 8.5),
    _gguf("gguf-q6_k", 6.5625),
    _gguf("gguf-q5_k_m", 5.5, richer=6.5625),
    _gguf("gguf-q5_0", 5.5),
    _gguf("gguf-q4_k_m", 4.5, richer=6.5625),
    _gguf("gguf-q4_k_s", 4.5),
    _gguf("gguf-q4_0", 4.5),
    _gguf("gguf-q4", 4.5, low=0.9, high=1.1),
    _gguf("gguf-iq4_xs", 4.25),
    _gguf("gguf-q3_k_m", 3.4375, richer=4.5),
    _gguf("gguf-q2_k", 2.625, richer=3.4375),
    Scheme("gguf-mxfp4", MappingProxyType({**_same(8.5, (*_LINEAR, "embedding", "head")), "expert": 4.25}),
           norm_bits=32, gguf=True, source="ggml MXFP4: experts; the rest q8_0"),
)  # fmt: skip

SCHEMES: Final[Mapping[str, Scheme]] = MappingProxyType({row.name: row for row in _ROWS})

_ALIASES: Final[Mapping[str, str]] = {
    "bf16/fp16": "bf16", "fp16": "bf16", "auto": "bf16", "none": "bf16", "f16": "bf16", "smoothquant-int8": "int8",
    "int8-w8a8": "int8", "w8a8": "int8", "awq": "awq-int4", "gptq": "gptq-int4", "bnb": "bnb-int4",
    "bitsandbytes": "bnb-int4", "bnb-nf4": "bnb-int4", "w4a16": "gptq-int4", "w8a16": "gptq-int8", "fp4": "nvfp4",
    "fp8-block": "fp8", "fp8-dynamic": "fp8", "compressed-tensors": "fp8", "gguf": "gguf-q4", "f32": "bf16", "fbgemm_fp8": "fp8-mlp-only", "modelopt": "nvfp4", "modelopt_fp4": "nvfp4",
}  # fmt: skip


@cache
def _mixture(name: str, bits: int) -> Scheme:
    """A GGUF mixture that is not listed: its nominal bits and about half a bit of scales and finer tensors."""
    return _gguf(name, bits + 0.6, low=0.88, high=1.12)


def scheme(name: str) -> Scheme:
    """The scheme of this name.

    Raises
    ------
    ConfigError
        No such scheme; the message lists those that are known.
    """
    wanted = name.casefold().strip()
    found = SCHEMES.get(_ALIASES.get(wanted, wanted))
    mixture = re.fullmatch(r"gguf-\S*?q([2-8])\S*", wanted)
    if found is None and mixture:
        return _mixture(wanted, int(mixture[1]))
    if found is None:
        raise ConfigError(f"--quantization {name}: unknown; known are {', '.join(SCHEMES)}")
    return found


#: part of a name → scheme of that kind, for names that nobody listed; the first that fits
_KINDS: Final = (
    ("fp4", "nvfp4"), ("int4", "awq-int4"), ("4bit", "awq-int4"), ("w4", "awq-int4"), ("nf4", "bnb-int4"),
    ("fp8", "fp8"), ("int8", "int8"), ("8bit", "int8"), ("w8", "int8"),
)  # fmt: skip


def nearest(name: str) -> tuple[Scheme, str]:
    """The scheme of this name, or of its kind with a sentence that says so; for names in logs, not for flags.

    Raises
    ------
    ConfigError
        The name says neither a scheme nor a kind.
    """
    try:
        return scheme(name), ""
    except ConfigError:
        for part, kind in _KINDS:
            if part in name.casefold():
                return SCHEMES[kind], f"what {name} quantises; taken as {kind}"
        raise


#: bytes of one cached element
KV_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "auto": 2.0, "bf16": 2.0, "fp16": 2.0, "f16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "int8": 1.0,
        "q8_0": 1.0625, "q5_1": 0.75, "q5_0": 0.6875, "q4_0": 0.5625, "q4_1": 0.625, "nvfp4": 0.5625, "f32": 4.0,
        "int4": 0.5, "fp8_ds_mla": 1.0,
    }
)  # fmt: skip


def kv_bytes(name: str) -> float:
    """Bytes of one element of the KV cache, scales included.

    Raises
    ------
    ConfigError
        No such type.
    """
    found = KV_BYTES.get(name.casefold())
    if found is None:
        raise ConfigError(f"--kv-cache-dtype {name}: unknown; known are {', '.join(KV_BYTES)}")
    return found
