"""Pages of accelerator exporters, composed from the names, types, labels and units that their tables were read from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.pipeline import TargetReader, Understood
from goodwatch.app.engines import known_accelerators
from goodwatch.core.model import Target

Family = tuple[str, str, float]  # name, type, value


@dataclass(frozen=True, slots=True)
class Gpu:
    """One series set of a DCGM page; ``pod`` is "namespace/name"."""

    uuid: str
    index: int = 0
    host: str = "gpu-1"
    pod: str = ""
    instance: str = ""
    watts: float | None = 300.0
    millijoules: float | None = None
    busy: float | None = 0.5
    used_mib: float | None = 20_000.0
    free_mib: float | None = 60_000.0
    reserved_mib: float | None = 1_559.0

    def labels(self) -> dict[str, str]:
        namespace, _, pod = self.pod.partition("/")
        return {
            "gpu": str(self.index), "UUID": self.uuid, "device": f"nvidia{self.index}", "modelName": "NVIDIA H100",
            "Hostname": self.host, "DCGM_FI_DRIVER_VERSION": "570.1",
            **({"GPU_I_PROFILE": "1g.10gb", "GPU_I_ID": self.instance} if self.instance else {}),
            **({"container": "engine", "namespace": namespace, "pod": pod} if pod else {}),
        }  # fmt: skip

    def families(self) -> list[Family]:
        every = (
            ("DCGM_FI_DEV_POWER_USAGE", "gauge", self.watts),
            ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", self.millijoules),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", self.busy),
            ("DCGM_FI_DEV_FB_USED", "gauge", self.used_mib),
            ("DCGM_FI_DEV_FB_FREE", "gauge", self.free_mib),
            ("DCGM_FI_DEV_FB_RESERVED", "gauge", self.reserved_mib),
        )
        return [(name, kind, value) for name, kind, value in every if value is not None]


def dcgm(*gpus: Gpu) -> str:
    """A page of the DCGM exporter."""
    return page([(family, gpu.labels()) for gpu in gpus for family in gpu.families()])


def page(series: Sequence[tuple[Family, Mapping[str, str]]]) -> str:
    """Prometheus text of these series, family by family."""
    by_name: dict[tuple[str, str], list[str]] = {}
    for (name, kind, value), labels in series:
        text = ",".join(f'{k}="{v}"' for k, v in labels.items())
        by_name.setdefault((name, kind), []).append(f"{name}{{{text}}} {value!r}\n")
    return "".join(f"# HELP {n} x\n# TYPE {n} {k}\n{''.join(lines)}" for (n, k), lines in by_name.items())


def understood(text: str, name: str = "exporter") -> Understood:
    """The page as the service reads it."""
    target = Target(name, f"http://{name}:9400/metrics", "", kind="accelerator")
    return TargetReader(target, known_accelerators()).understand(text, None)


def values(text: str) -> dict[str, dict[str, float]]:
    """Canonical signal → rank → value."""
    reading = understood(text).reading
    assert reading is not None
    return {
        name: {v.rank: v.value for v in resolved.values if v.value is not None}
        for name, resolved in reading.resolved.items()
    }
