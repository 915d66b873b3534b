"""Exposers beside the engines, by the names that tell them apart: what such a page is, and where to look instead."""

from dataclasses import dataclass
from typing import Final

from collector.families import Families, family_key


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A page that no engine table reads; ``advice`` is a sentence for a person."""

    prefixes: tuple[str, ...]
    title: str
    advice: str


_NEIGHBOURS: Final = (
    Neighbour(("llamacpp:",), "llama.cpp server", "It has no histograms, so no latency quantile; it is not read yet."),
    Neighbour(("lmdeploy:",), "LMDeploy", "It is not read yet."),
    Neighbour(("tgi_",), "Text Generation Inference", "It is not read yet."),
    Neighbour(("dynamo_",), "NVIDIA Dynamo", "It is not read yet; scrape the engines' own ports."),
    Neighbour(("smg_", "sgl_router_"), "SGLang router", "Scrape the engines, not the router, for engine health."),
    Neighbour(("vllm_router_",), "vLLM router", "Scrape the engines, not the router, for engine health."),
    Neighbour(("inference_extension_", "inference_objective_", "inference_pool_"), "llm-d endpoint picker",
              "Scrape the engines, not the picker, for engine health."),
    Neighbour(("litellm_",), "LiteLLM proxy", "It is not read yet; it sees requests, not engines."),
    Neighbour(("DCGM_",), "NVIDIA DCGM exporter", "It tells of GPUs, not of requests; it is not read yet."),
)  # fmt: skip

#: families that only the production-stack router makes, under the engine's own prefix
ROUTER_FAMILIES: Final = (
    "vllm:healthy_pods_total", "vllm:current_qps", "vllm:num_prefill_requests", "vllm:num_decoding_requests",
    "vllm:avg_decoding_length", "vllm:avg_latency", "vllm:avg_itl",
)  # fmt: skip


def neighbour_of(families: Families) -> Neighbour | None:
    """The neighbour that wrote a page; None when its names are unknown too."""
    keys = [family_key(f.name) for f in families]
    for one in _NEIGHBOURS:
        prefixes = tuple(family_key(p) for p in one.prefixes)
        if any(key.startswith(prefixes) for key in keys):
            return one
    return None


def is_router(families: Families) -> bool:
    """True for a router that re-exports engine names: its own families, or a ``server`` label on engine series."""
    own = {family_key(name) for name in ROUTER_FAMILIES}
    if any(family_key(f.name) in own and f.series for f in families):
        return True
    engine_series = [s for f in families if family_key(f.name).startswith("vllm_") for s in f.series]
    return bool(engine_series) and all("server" in s.labels for s in engine_series)
