"""MetaX's GPU exporter, in goodwatch's words. Names are from programs that read it, not from the exporter itself.

``mx_sgpu_*`` tell which pod holds a share of a device.
"""

from typing import Final

from collector.accelerators._labels import MILLI, PERCENT, REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Engine, Source

_VRAM: Final = {"type": "vram"}
_KB: Final = 1024.0
_KB_NOTE: Final = "KB taken as 1024 bytes, which was not verified"

ACCELERATOR: Final = Engine(
    name="metax",
    title="MetaX GPU exporter",
    docs="HAMi-WebUI and KubeSphere, which read it",
    role="accelerator",
    prefixes=("mx_gpu_", "mx_memory_", "mx_board_", "mx_chip_", "mx_sgpu_"),
    signals={
        "gpu_utilisation_ratio": (Source("mx_gpu_usage", scale=PERCENT),),
        "gpu_memory_used_bytes": (Source("mx_memory_used", scale=_KB, where=_VRAM, note=_KB_NOTE),),
        "gpu_memory_total_bytes": (Source("mx_memory_total", scale=_KB, where=_VRAM, note=_KB_NOTE),),
        "gpu_power_watts": (Source("mx_board_power", scale=MILLI, note="the board"),),
        "gpu_temperature_celsius": (Source("mx_chip_hotspot_temp", note="the hottest spot"),),
    },
    absent=UNREAD_SIGNALS,
    model_labels=(),
    sum_labels=("uuid",),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "Its port is not known from its source."},
)
