"""HAMi, which shares GPUs among pods, in goodwatch's words. Names are from programs that read it.

It tells which pods share a device: its devices are those of the vendor's exporter, whose numbers win. Memory is told
per container, so it is no device's.
"""

from typing import Final

from collector.accelerators._labels import PERCENT, REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Absent, Engine, Source

_VENDOR: Final = Absent("told per container here, not per device", "the exporter of the device's vendor")

ACCELERATOR: Final = Engine(
    name="hami",
    title="HAMi",
    docs="HAMi-WebUI, which reads it",
    role="accelerator",
    prefixes=("hami_",),
    signals={
        "gpu_utilisation_ratio": (
            Source("hami_host_gpu_utilization_ratio", scale=PERCENT, note="0 to 100 in spite of its name"),
        ),
    },
    absent={**UNREAD_SIGNALS, "gpu_memory_used_bytes": _VENDOR, "gpu_memory_total_bytes": _VENDOR},
    model_labels=(),
    sum_labels=("deviceuuid",),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "Its port is not known from its source."},
)
