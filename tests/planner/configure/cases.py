"""Configurations of every engine: a few by hand, and any that hypothesis thinks of."""

from typing import Any, Final

from hypothesis import strategies as st

from planner.configure.spelling import spelled
from planner.configure.values import Configuration
from planner.flags import exists, flags_of

VERSIONS: Final = {
    "vllm": ("0.4.3", "0.6.6", "0.7.3", "0.8.5", "0.13.0", "0.32.0", ""),
    "vllm-ascend": ("0.13.0", ""),
    "sglang": ("0.4.6", "0.5.6", "0.5.23", ""),
    "tensorrt-llm": ("1.0.0", "1.2.0", ""),
    "llama.cpp": ("",),
    "lmdeploy": ("0.6.5", "0.9.2", "0.18.0", ""),
}

GOLDEN: Final = {
    "vllm": Configuration(
        engine="vllm", engine_version="0.13.0", model="Qwen/Qwen3-32B", gpu="H100-SXM-80GB", tp=2, kv_dtype="fp8",
        max_model_len=32768, max_num_seqs=256, prefix_caching=True, speculative_method="eagle3", speculative_tokens=3,
        draft_model="AngelSlim/Qwen3-32B_eagle3", memory_fraction=0.92,
    ),
    "vllm-ascend": Configuration(
        engine="vllm-ascend", engine_version="0.13.0", model="vllm-ascend/QwQ-32B-W8A8", gpu="Ascend-910B2-64GB", tp=4,
        quantisation="int8", max_model_len=16384,
    ),
    "sglang": Configuration(
        engine="sglang", engine_version="0.5.6", model="deepseek-ai/DeepSeek-V3", gpu="H200-SXM-141GB", tp=1, dp=8, ep=8,
        kv_dtype="fp8_e4m3", scheduling_policy="lpm", replicas=2, max_queued_requests=512,
    ),
    "tensorrt-llm": Configuration(
        engine="tensorrt-llm", engine_version="1.2.0", model="nvidia/Llama-3.3-70B-Instruct-FP8", gpu="H100-SXM-80GB", tp=2,
        quantisation="fp8", kv_dtype="fp8", max_model_len=16384, max_num_seqs=512, max_num_batched_tokens=8192,
        chunked_prefill=True, memory_fraction=0.85,
    ),
    "llama.cpp": Configuration(
        engine="llama.cpp", model="bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M", gpu="L4", quantisation="gguf-q4_k_m",
        kv_dtype="q8_0", max_model_len=8192, max_num_seqs=4,
    ),
    "lmdeploy": Configuration(
        engine="lmdeploy", engine_version="0.18.0", model="Qwen/Qwen2.5-32B-Instruct-AWQ", gpu="A100-SXM4-80GB", tp=2,
        quantisation="awq-int4", kv_dtype="int8", max_model_len=32768, prefix_caching=True,
    ),
}  # fmt: skip

_NUMBERS: Final = (
    "max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_queued_requests", "block_tokens", "max_loras", "max_lora_rank",
)  # fmt: skip
_SWITCHES: Final = ("prefix_caching", "chunked_prefill", "eager")
_WORDS: Final = ("quantisation", "kv_dtype", "scheduling_policy", "speculative_method")


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """A configuration that its engine's version can say, with the settings that this version has."""
    engine = draw(st.sampled_from(sorted(VERSIONS)))
    version = draw(st.sampled_from(VERSIONS[engine]))
    one = Configuration(
        engine=engine, engine_version=version, model=draw(st.sampled_from(["Qwen/Qwen3-32B", "/models/my model"]))
    )
    chosen: dict[str, Any] = draw(layouts(engine, version))
    table = flags_of(engine)
    there = {row.setting: row for row in table.in_version(table.version(version))}
    for name in _NUMBERS:
        if name in there or (name == "max_model_len" and "context" in there):
            chosen[name] = draw(st.none() | st.integers(1, 4000))
    if "memory_fraction" in there:
        chosen["memory_fraction"] = draw(st.none() | st.integers(1, 100).map(lambda share: share / 100))
    for name in _SWITCHES:
        if name in there:
            chosen[name] = draw(st.sampled_from([None, True, False]))
    for name in _WORDS:
        values = words(engine, version, name)
        chosen[name] = draw(st.sampled_from([None, *values]))
    if chosen["speculative_method"] is not None:
        chosen["speculative_tokens"] = draw(st.none() | st.integers(1, 8))
        chosen["draft_model"] = draw(st.sampled_from([None, "me/draft"]))
        if engine == "llama.cpp" and chosen["speculative_method"] == "ngram":
            chosen["speculative_tokens"] = None
    if "lora_adapters" in there:
        chosen["lora_adapters"] = draw(st.sampled_from([(), ("a=/adapters/a",), ("a=/x", "b=/y z")]))
    if chosen.get("chunked_prefill") is False and engine == "sglang":
        chosen["max_num_batched_tokens"] = None  # one flag says both
    made = {**one.told(), **{name: value for name, value in chosen.items() if value is not None}}
    return Configuration(**made)


def words(engine: str, version: str, setting: str) -> list[str]:
    """Values of a setting that have a word of their own: of two with one word, the first is what is read back."""
    table = flags_of(engine)
    told = table.version(version)
    found: dict[str, str] = {}
    for row in table.in_version(told):
        if row.setting == setting:
            for value, word in row.values.items():
                if exists(word.since, word.until, told):
                    found.setdefault(word.text, value)
            found |= {value: value for value, argv in row.argv.items() if argv}
            if row.member:
                found |= {"eagle": "eagle", "ngram": "ngram"}
    return sorted(found.values())


@st.composite
def layouts(draw: st.DrawFn, engine: str, version: str) -> dict[str, int]:
    """Ranks that the engine can have."""
    size = st.sampled_from([2, 4, 8])
    tp, pp = draw(st.none() | size), draw(st.none() | size)
    table = flags_of(engine)
    there = {row.setting for row in table.in_version(table.version(version))}
    if engine == "llama.cpp":
        return {"tp": tp} if tp else {"pp": pp} if pp else {}
    found = {"tp": tp, "pp": pp if "pp" in there else None}
    if engine in ("vllm", "vllm-ascend") and "dp" in there:
        found["dp"] = draw(st.none() | size)
        shared = (tp or 1) * (found["dp"] or 1)
        found["ep"] = shared if shared > 1 and draw(st.booleans()) else None
    if engine == "sglang":
        found["dp"], found["ep"] = draw(st.none() | size), draw(st.none() | size)
    if engine == "tensorrt-llm" and draw(st.booleans()):
        found = {"dp": draw(size), "ep": draw(st.none() | size)}
    return {name: ranks for name, ranks in found.items() if ranks}


def readable(one: Configuration) -> Configuration:
    """The configuration without what needs no flag: that cannot be read back."""
    silent = {line.setting for line in spelled(one).lines if not line.argv and not line.keys}
    kept = {name: value for name, value in one.told().items() if name not in silent}
    return Configuration(**kept)  # type: ignore[arg-type]
