"""NVIDIA's DCGM exporter, in goodwatch's words. Read in dcgm-exporter 4.5.3-4.8.2, its default list of fields.

Under MIG each instance is a device of its own: its memory and activity are its own, power and energy are the card's.
"""

from typing import Final

from collector.accelerators._labels import INSTANCE, MEGA, MIB, MILLI, PERCENT, REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Absent, Engine, Source

_OPT_IN: Final = "commented out in the exporter's default list"
_ON: Final = "not in this exporter's list of fields, or the card has no such counter"

ACCELERATOR: Final = Engine(
    name="dcgm",
    title="NVIDIA DCGM exporter",
    docs="dcgm-exporter, default-counters.csv",
    role="accelerator",
    prefixes=("DCGM_FI_", "DCGM_EXP_"),
    signals={
        # G-D1: GPU_UTIL is absent or 0 on MIG instances, so there it is not believed.
        "gpu_utilisation_ratio": (
            Source("DCGM_FI_PROF_GR_ENGINE_ACTIVE", note="graphics or compute engine active"),
            Source("DCGM_FI_DEV_GPU_UTIL", scale=PERCENT, where={INSTANCE: ""}, note="a kernel ran, however small"),
        ),
        "gpu_sm_active_ratio": (Source("DCGM_FI_PROF_SM_ACTIVE"),),
        "gpu_tensor_active_ratio": (Source("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),),
        "gpu_memory_bandwidth_ratio": (Source("DCGM_FI_PROF_DRAM_ACTIVE"),),
        "gpu_memory_used_bytes": (Source("DCGM_FI_DEV_FB_USED", scale=MIB),),
        "gpu_memory_total_bytes": (
            Source(
                "DCGM_FI_DEV_FB_USED",
                scale=MIB,
                needs=("DCGM_FI_DEV_FB_FREE",),
                plus=("DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"),
                derived=True,
                note="without what the driver reserves where the exporter does not tell it",
            ),
        ),
        "gpu_power_watts": (Source("DCGM_FI_DEV_POWER_USAGE"),),
        "gpu_energy_joules_total": (
            Source("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", scale=MILLI),
            Source("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", scale=MILLI),
        ),
        "gpu_temperature_celsius": (Source("DCGM_FI_DEV_GPU_TEMP"),),
        "gpu_clock_hertz": (Source("DCGM_FI_DEV_SM_CLOCK", scale=MEGA),),
        "gpu_error_code": (Source("DCGM_FI_DEV_XID_ERRORS", note="the last XID; it stays"),),
    },
    absent={
        **UNREAD_SIGNALS,
        "gpu_utilisation_ratio": Absent(_ON),
        "gpu_sm_active_ratio": Absent(_OPT_IN, "gpu_utilisation_ratio", "DCGM_FI_PROF_SM_ACTIVE in its list"),
        "gpu_tensor_active_ratio": Absent(_ON),
        "gpu_memory_bandwidth_ratio": Absent(_ON),
        "gpu_energy_joules_total": Absent(_ON, "gpu_power_watts over time"),
        "gpu_errors_total": Absent("its XID counts are of a sliding window and can fall", "gpu_error_code"),
    },
    model_labels=(),
    sum_labels=("UUID", INSTANCE),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "The DCGM exporter serves metrics on port 9400."},
)
