"""A configuration of an engine in neutral words; ``None`` is "the engine's own default", never a number."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from goodwatch.core.errors import ConfigError

#: name → least and largest value that means anything
_LIMITS: Final[dict[str, tuple[float, float]]] = {
    "gpu_count": (1, 65_536), "tp": (1, 4096), "pp": (1, 4096), "dp": (1, 4096), "ep": (1, 4096),
    "max_model_len": (1, 100_000_000), "max_num_seqs": (1, 1_000_000), "max_num_batched_tokens": (1, 10_000_000),
    "max_queued_requests": (1, 10_000_000), "block_tokens": (1, 65_536), "speculative_tokens": (1, 1024),
    "replicas": (1, 65_536), "prefill_replicas": (1, 65_536), "decode_replicas": (1, 65_536),
    "max_lora_rank": (1, 4096), "max_loras": (1, 4096),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What to run, for any engine.

    Names are those of ``Evidence.settings`` and ``Proposal.changes``. ``None`` (or ``""``, ``()``) leaves a setting to the
    engine's default in that version.

    Parameters
    ----------
    engine, engine_version
        Name in ``planner.engines`` (vllm, sglang, tensorrt-llm, llama.cpp, lmdeploy, vllm-ascend); "" is the newest that
        the tables know.
    model
        Repository, folder, or GGUF file.
    gpu, gpu_count
        Card by its catalogue name; cards of one replica, ``None``: as many as ``tp × pp × dp``.
    tp, pp, dp, ep
        Ranks that cut each layer, pipeline stages, ranks that repeat attention, ranks that share the experts. One replica
        has ``tp × pp × dp`` ranks, in every engine.
    quantisation
        Scheme of the weights (``planner.quantisation``); ``None`` is the checkpoint's own.
    kv_dtype
        Type of the KV cache: auto, fp8, fp8_e4m3, fp8_e5m2, int8, int4, nvfp4, q8_0, ….
    max_model_len, max_num_seqs, max_num_batched_tokens
        Longest request (tokens), most requests that run at once in one engine, most tokens of a step (SGLang: of a prefill
        chunk).
    memory_fraction
        The engine's OWN share, 0 to 1; it means something else in each engine and is never carried over.
    speculative_method, speculative_tokens, draft_model
        eagle, eagle3, mtp, ngram, draft_model; tokens proposed a step; the draft's repository or folder.
    replicas, prefill_replicas, decode_replicas
        Whole replicas; or, disaggregated, replicas of each role.
    scheduling_policy
        fcfs, priority, lpm (longest shared prefix first), max_utilization.
    lora_adapters, max_loras, max_lora_rank
        ``name=path`` each; most adapters in one batch; highest rank.
    extra
        Flags in the engine's own spelling, value "" for a switch; kept as they are and checked against the tables.

    Raises
    ------
    ConfigError
        A value outside what means anything.
    """

    engine: str
    model: str
    engine_version: str = ""
    gpu: str | None = None
    gpu_count: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    quantisation: str | None = None
    kv_dtype: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_queued_requests: int | None = None
    memory_fraction: float | None = None
    block_tokens: int | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    mixed_chunk: bool | None = None
    eager: bool | None = None
    speculative_method: str | None = None
    speculative_tokens: int | None = None
    draft_model: str | None = None
    replicas: int | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    scheduling_policy: str | None = None
    lora_adapters: tuple[str, ...] = ()
    max_loras: int | None = None
    max_lora_rank: int | None = None
    extra: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name}: {value} is outside {low:,.0f} to {high:,.0f}")
        share = self.memory_fraction
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"memory_fraction: {share} is outside (0, 1]")
        if not self.model.strip():
            raise ConfigError("model: is empty; give a repository, a folder or a file")
        if self.model.startswith("-"):
            raise ConfigError(f"model: {self.model} reads like a flag; give a repository, a folder or a file")
        if not self.model.isprintable():
            raise ConfigError(f"model: {self.model!r} holds control characters; give a repository, a folder or a file")
        if (self.prefill_replicas is None) != (self.decode_replicas is None):
            raise ConfigError("prefill_replicas and decode_replicas: give both, or neither")
        if self.gpu_count is not None and self.gpu_count < self.ranks:
            raise ConfigError(f"gpu_count: {self.gpu_count} is below tp × pp × dp = {self.ranks}")

    @property
    def ranks(self) -> int:
        """Ranks of one replica: ``tp × pp × dp``."""
        return (self.tp or 1) * (self.pp or 1) * (self.dp or 1)

    @property
    def cards(self) -> int:
        """Cards of one replica."""
        return self.gpu_count or self.ranks

    @property
    def copies(self) -> int:
        """Replicas of all roles."""
        if self.prefill_replicas is not None and self.decode_replicas is not None:
            return self.prefill_replicas + self.decode_replicas
        return self.replicas or 1

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode run on replicas of their own."""
        return self.prefill_replicas is not None

    def told(self) -> dict[str, object]:
        """Settings that are not left to the engine, by name, in the order of the fields."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if value not in (None, "", ())}
