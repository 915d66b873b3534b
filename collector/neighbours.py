"""Pages that no table reads, by the names that tell them apart: what such a page is, and where to look instead."""

from dataclasses import dataclass
from typing import Final

from collector.families import Families, Series, family_key


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A page that no engine table reads; ``advice`` is a sentence for a person."""

    prefixes: tuple[str, ...]
    title: str
    advice: str


_NEIGHBOURS: Final = (
    Neighbour(("DCGM_",), "NVIDIA DCGM exporter", "It tells of GPUs, not of requests: list it under accelerators instead of targets."),
    Neighbour(("npu_chip_info_", "container_npu_"), "Ascend NPU exporter",
              "It tells of NPUs, not of requests: list it under accelerators instead of targets."),
)  # fmt: skip

#: families that only the production-stack router makes, under the engine's own prefix
ROUTER_FAMILIES: Final = (
    "vllm:healthy_pods_total", "vllm:current_qps", "vllm:num_prefill_requests", "vllm:num_decoding_requests",
    "vllm:avg_decoding_length", "vllm:avg_latency", "vllm:avg_itl",
)  # fmt: skip
_ROUTER_KEYS: Final = frozenset(map(family_key, ROUTER_FAMILIES))


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
    others = _engine_series(families)
    return _has_router_families(families) or bool(others and all("server" in s.labels for s in others))


def is_only_router(families: Families) -> bool:
    """True when nothing under the engine's prefix comes from an engine itself: a router's page and no other."""
    return _has_router_families(families) and all("server" in s.labels for s in _engine_series(families))


def _has_router_families(families: Families) -> bool:
    return any(family_key(f.name) in _ROUTER_KEYS and f.series for f in families)


def _engine_series(families: Families) -> list[Series]:
    """Series under vLLM's prefix that a router does not make by itself."""
    keyed = ((family_key(f.name), f) for f in families)
    return [s for key, f in keyed if key.startswith("vllm_") and key not in _ROUTER_KEYS for s in f.series]
