"""Cambricon's MLU exporter, in goodwatch's words. Names are from programs that read it, not from the exporter itself.

``mlu_container`` is the page's own table of which pod holds which device.
"""

from typing import Final

from collector.accelerators._labels import PERCENT, REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Engine, Source

_BYTES: Final = "taken as bytes, which was not verified"

ACCELERATOR: Final = Engine(
    name="cambricon",
    title="Cambricon MLU exporter",
    docs="HAMi-WebUI and KubeSphere, which read it",
    role="accelerator",
    prefixes=("mlu_",),
    signals={
        "gpu_utilisation_ratio": (Source("mlu_utilization", scale=PERCENT),),
        "gpu_memory_used_bytes": (Source("mlu_memory_used", note=_BYTES),),
        "gpu_memory_total_bytes": (Source("mlu_memory_total", note=_BYTES),),
        "gpu_power_watts": (Source("mlu_power_usage"),),
        "gpu_temperature_celsius": (Source("mlu_temperature"),),
    },
    absent=UNREAD_SIGNALS,
    model_labels=(),
    sum_labels=("uuid",),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "Its port is not known from its source."},
)
