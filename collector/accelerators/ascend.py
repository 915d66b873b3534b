"""Huawei's Ascend NPU exporter, in goodwatch's words. Read in its source and in the MindCluster 7.0RC1 documentation.

Its samples carry time stamps of their own, which are not kept: the time of the scrape counts (G-H5). Older versions
have the label ``id`` only, so there a device is known by its number and its exporter.
"""

from typing import Final

from collector.accelerators._labels import MEGA, PERCENT, REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Absent, Engine, Source

_MB: Final = "MB as the exporter says; where it means MiB this is 5 % low"
_DDR: Final = f"DDR of a card without HBM; {_MB}"

ACCELERATOR: Final = Engine(
    name="ascend",
    title="Ascend NPU exporter",
    docs="ascend-npu-exporter; MindCluster documentation",
    role="accelerator",
    prefixes=("npu_chip_info_", "container_npu_", "machine_npu_"),
    signals={
        "gpu_utilisation_ratio": (Source("npu_chip_info_utilization", scale=PERCENT, note="the AI cores"),),
        "gpu_memory_used_bytes": (
            Source("npu_chip_info_hbm_used_memory", scale=MEGA, note=f"HBM; {_MB}"),
            Source("npu_chip_info_used_memory", scale=MEGA, note=_DDR),
        ),
        "gpu_memory_total_bytes": (
            Source("npu_chip_info_hbm_total_memory", scale=MEGA, note=f"HBM; {_MB}"),
            Source("npu_chip_info_total_memory", scale=MEGA, note=_DDR),
        ),
        "gpu_power_watts": (Source("npu_chip_info_power", note="some cards tell the whole card's, not the chip's"),),
        "gpu_temperature_celsius": (Source("npu_chip_info_temperature"),),
        "gpu_clock_hertz": (Source("npu_chip_info_aicore_current_freq", scale=MEGA),),
        "gpu_error_code": (Source("npu_chip_info_error_code"),),
        "gpu_healthy": (Source("npu_chip_info_health_status"),),
    },
    absent={
        **UNREAD_SIGNALS,
        "gpu_energy_joules_total": Absent("no energy counter is known from this exporter", "gpu_power_watts over time"),
    },
    model_labels=(),  # model_name is the card's here
    sum_labels=("vdie_id", "id"),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "The Ascend NPU exporter serves metrics on port 8082."},
)
