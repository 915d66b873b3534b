"""What a model class does that its configuration does not say: biases, norms, gates. Data, read in public model code.

A class that is not listed is taken as a plain Llama-like decoder, and the facts say so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Norm = Literal["none", "head", "width"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """Tensors of one model class beside the plain ones."""

    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    gated_mlp: bool = True
    qk_norm: Norm = "none"
    norms_per_layer: int = 2
    norm_bias: bool = False
    head_bias: bool = False
    learned_positions: int = 0  # extra rows beside max_position_embeddings; 0 with has_positions False
    has_positions: bool = False
    rotary: bool = True
    gated_attention: bool = False  # the query projection carries an output gate of its size
    expert_bias: bool = False
    sinks: bool = False
    shared_expert_gate: bool = False
    split_gate_up: bool = True  # gate and up are one tensor in the engine
    attention_bias_by_config: bool = False  # only where the configuration sets attention_bias
    layers: Literal["both", "one"] = "both"  # "one": each layer is either a mixer or a feed-forward


_LLAMA: Final = Architecture(attention_bias_by_config=True)
_QWEN2: Final = Architecture(qkv_bias=True)
_QWEN3: Final = Architecture(qk_norm="head")
_GEMMA: Final = Architecture(norms_per_layer=4)
_GEMMA3: Final = Architecture(norms_per_layer=4, qk_norm="head")
_MLA: Final = Architecture()
_QWEN_NEXT: Final = Architecture(qk_norm="head", gated_attention=True, shared_expert_gate=True)
_CLASSIC: Final = Architecture(qkv_bias=True, o_bias=True, mlp_bias=True, gated_mlp=False, norm_bias=True)

ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {
        "LlamaForCausalLM": _LLAMA,
        "MistralForCausalLM": _LLAMA,
        "Mistral3ForConditionalGeneration": _LLAMA,
        "MixtralForCausalLM": _LLAMA,
        "Phi3ForCausalLM": _LLAMA,
        "GraniteForCausalLM": _LLAMA,
        "Llama4ForConditionalGeneration": _LLAMA,
        "Qwen2ForCausalLM": _QWEN2,
        "Qwen2VLForConditionalGeneration": _QWEN2,
        "Qwen2_5_VLForConditionalGeneration": _QWEN2,
        "Qwen2MoeForCausalLM": Architecture(qkv_bias=True, shared_expert_gate=True),
        "Qwen3ForCausalLM": _QWEN3,
        "Qwen3MoeForCausalLM": _QWEN3,
        "Qwen3VLForConditionalGeneration": _QWEN3,
        "Qwen3VLMoeForConditionalGeneration": _QWEN3,
        "Qwen3NextForCausalLM": _QWEN_NEXT,
        "Qwen3_5ForConditionalGeneration": _QWEN_NEXT,
        "Qwen3_5MoeForConditionalGeneration": _QWEN_NEXT,
        "Gemma2ForCausalLM": _GEMMA,
        "Gemma3ForCausalLM": _GEMMA3,
        "Gemma3ForConditionalGeneration": _GEMMA3,
        "Gemma4ForConditionalGeneration": _GEMMA3,
        "Glm4ForCausalLM": Architecture(norms_per_layer=4, attention_bias_by_config=True),
        "Glm4MoeForCausalLM": Architecture(qkv_bias=True),
        "GptOssForCausalLM": Architecture(qkv_bias=True, o_bias=True, expert_bias=True, sinks=True),
        "MiniMaxM2ForCausalLM": Architecture(qk_norm="width"),
        "DeepseekV2ForCausalLM": _MLA,
        "DeepseekV3ForCausalLM": _MLA,
        "DeepseekV32ForCausalLM": _MLA,
        "GlmMoeDsaForCausalLM": _MLA,
        "KimiK25ForConditionalGeneration": _MLA,
        "KimiLinearForCausalLM": _MLA,
        "CohereForCausalLM": Architecture(norms_per_layer=1),
        "PhiForCausalLM": Architecture(
            qkv_bias=True, o_bias=True, mlp_bias=True, gated_mlp=False, norms_per_layer=1, norm_bias=True, head_bias=True
        ),
        "OPTForCausalLM": Architecture(
            qkv_bias=True, o_bias=True, mlp_bias=True, gated_mlp=False, norm_bias=True, has_positions=True,
            learned_positions=2, rotary=False,
        ),
        "GPT2LMHeadModel": Architecture(
            qkv_bias=True, o_bias=True, mlp_bias=True, gated_mlp=False, norm_bias=True, has_positions=True, rotary=False
        ),
        "GPTBigCodeForCausalLM": Architecture(
            qkv_bias=True, o_bias=True, mlp_bias=True, gated_mlp=False, norm_bias=True, has_positions=True, rotary=False
        ),
        "Starcoder2ForCausalLM": _CLASSIC,
        "FalconForCausalLM": Architecture(gated_mlp=False, norms_per_layer=1, norm_bias=True),
        "BaichuanForCausalLM": Architecture(rotary=False),
        "Lfm2ForCausalLM": Architecture(qk_norm="head"),
        "NemotronHForCausalLM": Architecture(gated_mlp=False, norms_per_layer=1, layers="one", rotary=False),
        "JambaForCausalLM": Architecture(rotary=False),
        "GraniteMoeHybridForCausalLM": Architecture(rotary=False),
    }
)  # fmt: skip
