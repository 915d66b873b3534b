"""AMD's device metrics exporter, in goodwatch's words. Read in its list of metrics.

Its names begin with ``gpu_`` as those of others may, so whole names identify it. Memory is told in MB.
"""

from typing import Final

from collector.accelerators._labels import MEGA, MICRO, PERCENT, REPEATED, UNREAD_SIGNALS
from goodwatch.core.engine import Absent, Engine, Source

_MB: Final = "MB as the exporter says; where it means MiB this is 5 % low"
_PARTITIONED: Final = "not told for partitioned GPUs"

ACCELERATOR: Final = Engine(
    name="amd",
    title="AMD device metrics exporter",
    docs="AMD device-metrics-exporter, list of metrics",
    role="accelerator",
    prefixes=(
        "gpu_gfx_activity", "gpu_umc_activity", "gpu_used_vram", "gpu_total_vram", "gpu_free_vram", "gpu_package_power",
        "gpu_average_package_power", "gpu_power_usage", "gpu_energy_consumed", "gpu_junction_temperature",
        "gpu_ecc_uncorrect",
    ),
    signals={
        "gpu_utilisation_ratio": (Source("gpu_gfx_activity", scale=PERCENT, note=_PARTITIONED),),
        "gpu_memory_bandwidth_ratio": (Source("gpu_umc_activity", scale=PERCENT, note="the memory controller"),),
        "gpu_memory_used_bytes": (Source("gpu_used_vram", scale=MEGA, note=_MB),),
        "gpu_memory_total_bytes": (Source("gpu_total_vram", scale=MEGA, note=_MB),),
        "gpu_power_watts": (
            Source("gpu_power_usage"),
            Source("gpu_package_power", note="MI3xx"),
            Source("gpu_average_package_power", note="MI2xx"),
        ),
        "gpu_energy_joules_total": (
            Source("gpu_energy_consumed", "counter", scale=MICRO),
            Source("gpu_energy_consumed", scale=MICRO),
        ),
        "gpu_temperature_celsius": (Source("gpu_junction_temperature", note="the hottest spot"),),
        "gpu_errors_total": (
            Source("gpu_ecc_uncorrect_total", note="memory errors that could not be corrected; a total typed as gauge"),
            Source("gpu_ecc_uncorrect", "counter", note="memory errors that could not be corrected"),
        ),
    },
    absent={**UNREAD_SIGNALS, "gpu_utilisation_ratio": Absent(_PARTITIONED)},
    model_labels=(),
    sum_labels=("serial_number", "gpu_id"),
    rank_as="gpu",
    repeat_labels=REPEATED,
    hints={"off": "The AMD device metrics exporter serves metrics on port 5000."},
)  # fmt: skip
