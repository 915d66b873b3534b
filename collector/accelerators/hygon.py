"""Hygon's DCU exporter, in goodwatch's words. Names are from programs that read it, not from the exporter itself.

``vdcu_*`` name the pod that holds a device by its UID, which ``kube_pod_info`` turns into a name.
"""

from typing import Final

from collector.accelerators._labels import PERCENT, REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Engine, Source

ACCELERATOR: Final = Engine(
    name="hygon",
    title="Hygon DCU exporter",
    docs="HAMi-WebUI and KubeSphere, which read it",
    role="accelerator",
    prefixes=("dcu_", "vdcu_"),
    signals={
        "gpu_utilisation_ratio": (Source("dcu_utilizationrate", scale=PERCENT),),
        "gpu_memory_used_bytes": (Source("dcu_usedmemory_bytes"),),
        "gpu_memory_total_bytes": (Source("dcu_memorycap_bytes"),),
        "gpu_power_watts": (Source("dcu_power_usage"),),
        "gpu_temperature_celsius": (Source("dcu_temp"),),
    },
    absent=UNREAD_SIGNALS,
    model_labels=(),
    sum_labels=("device_id",),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "Its port is not known from its source."},
)
