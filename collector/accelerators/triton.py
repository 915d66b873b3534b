"""The GPUs that Triton tells of beside its models, in goodwatch's words: list its page under ``accelerators`` too.

They are those that Triton can see, so their energy is its own as long as nobody else uses them.
"""

from typing import Final

from collector.accelerators._labels import REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Engine, Source

ACCELERATOR: Final = Engine(
    name="triton",
    title="Triton's GPU metrics",
    docs="Triton Inference Server documentation, Metrics",
    role="accelerator",
    prefixes=("nv_gpu_", "nv_energy_"),
    signals={
        "gpu_utilisation_ratio": (Source("nv_gpu_utilization", note="0 to 1, unlike DCGM"),),
        "gpu_memory_used_bytes": (Source("nv_gpu_memory_used_bytes"),),
        "gpu_memory_total_bytes": (Source("nv_gpu_memory_total_bytes"),),
        "gpu_power_watts": (Source("nv_gpu_power_usage"),),
        "gpu_energy_joules_total": (Source("nv_energy_consumption", "counter"), Source("nv_energy_consumption")),
    },
    absent=UNREAD_SIGNALS,
    model_labels=(),
    sum_labels=("gpu_uuid",),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "Triton serves metrics on port 8002 unless it runs with --allow-metrics=false."},
)
