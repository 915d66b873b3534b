"""What holds for every table of an accelerator exporter, and what each makes of its own names and units."""

import importlib
import pkgutil

import pytest

import collector.accelerators
from collector.families import family_key
from goodwatch.app.engines import known_accelerators, known_engines
from goodwatch.core.catalogue import ACCELERATOR_SIGNALS, CATALOGUE
from goodwatch.core.engine import Engine
from goodwatch.core.model import SignalKind
from tests.collector.accelerators.pages import Family, Gpu, dcgm, page, understood, values

_MODULES = sorted(m.name for m in pkgutil.iter_modules(collector.accelerators.__path__) if not m.name.startswith("_"))


@pytest.fixture(params=_MODULES)
def table(request: pytest.FixtureRequest) -> Engine:
    found: Engine = importlib.import_module(f"collector.accelerators.{request.param}").ACCELERATOR
    assert found.name == request.param, "ACCELERATOR.name must be the module's name: tables are found by it"
    return found


def test_every_signal_has_a_source_or_a_reason(table: Engine) -> None:
    assert not ACCELERATOR_SIGNALS - set(table.signals) - set(table.absent)
    assert set(table.signals) | set(table.absent) <= ACCELERATOR_SIGNALS


def test_a_table_is_of_devices_and_knows_them_apart(table: Engine) -> None:
    assert table.role == "accelerator"
    assert table.model_labels == (), "a model label of a device is its product, not what it serves"
    assert not table.signals or (table.sum_labels and table.rank_as == "gpu")
    assert not set(table.sum_labels) & set(table.repeat_labels)
    assert table.title
    assert table.docs
    assert table.hints["off"].endswith(".")


def test_sources_fit_their_signals(table: Engine) -> None:
    for name, sources in table.signals.items():
        for source in sources:
            assert source.type in ("gauge", "counter")
            assert CATALOGUE[name].kind is not SignalKind.GAUGE or source.type == "gauge", name
            assert source.derived or not (source.plus or source.minus or source.over or source.times), name


def test_no_two_tables_claim_one_name(table: Engine) -> None:
    mine = tuple(family_key(p) for p in table.prefixes)
    others = [t for t in (*known_accelerators().values(), *known_engines().values()) if t.name != table.name]
    for other in others:
        assert not any(family_key(p).startswith(mine) for p in other.prefixes), other.name


def test_dcgm_units_become_canonical() -> None:
    found = values(dcgm(Gpu("GPU-a", watts=312.5, millijoules=5_000.0, busy=0.25, used_mib=1.0, free_mib=2.0)))
    assert found["gpu_power_watts"] == {"gpu=GPU-a": 312.5}
    assert found["gpu_energy_joules_total"] == {"gpu=GPU-a": 5.0}
    assert found["gpu_utilisation_ratio"] == {"gpu=GPU-a": 0.25}
    assert found["gpu_memory_used_bytes"] == {"gpu=GPU-a": 1024.0**2}
    assert found["gpu_memory_total_bytes"] == {"gpu=GPU-a": (1 + 2 + 1559) * 1024.0**2}


def test_total_memory_is_not_guessed_from_a_part_of_it() -> None:
    found = values(dcgm(Gpu("GPU-a", free_mib=None, reserved_mib=None)))
    assert "gpu_memory_used_bytes" in found
    assert "gpu_memory_total_bytes" not in found


def test_the_busy_per_cent_of_dcgm_is_not_believed_of_an_instance() -> None:
    labels = Gpu("GPU-a").labels()
    sliced = Gpu("GPU-b", instance="3").labels()
    family = ("DCGM_FI_DEV_GPU_UTIL", "gauge", 40.0)
    found = values(page([(family, labels), ((*family[:2], 0.0), sliced)]))
    assert found["gpu_utilisation_ratio"] == {"gpu=GPU-a": pytest.approx(0.4)}


def test_an_instance_is_a_device_of_its_own() -> None:
    found = values(dcgm(Gpu("GPU-a", instance="3", busy=0.1), Gpu("GPU-a", instance="4", busy=0.9)))
    assert found["gpu_utilisation_ratio"] == {"gpu=GPU-a/3": 0.1, "gpu=GPU-a/4": 0.9}


def test_a_device_that_pods_share_is_read_once() -> None:
    found = values(dcgm(Gpu("GPU-a", pod="ai/one", watts=300.0), Gpu("GPU-a", pod="ai/two", watts=300.0)))
    assert found["gpu_power_watts"] == {"gpu=GPU-a": 300.0}


def test_an_energy_counter_may_be_typed_as_a_gauge() -> None:
    family = ("gpu_energy_consumed", "gauge", 7e6)
    found = values(page([(family, {"gpu_id": "0", "serial_number": "S1", "card_model": "MI300X"})]))
    assert found["gpu_energy_joules_total"] == {"gpu=S1/0": 7.0}


@pytest.mark.parametrize(
    ("family", "labels", "exporter", "signal", "expected"),
    [
        (("gpu_gfx_activity", "gauge", 80.0), {"gpu_id": "1"}, "amd", "gpu_utilisation_ratio", 0.8),
        (("GPU_GFX_ACTIVITY", "gauge", 80.0), {"gpu_id": "1"}, "amd", "gpu_utilisation_ratio", 0.8),
        (("gpu_used_vram", "gauge", 5.0), {"gpu_id": "1"}, "amd", "gpu_memory_used_bytes", 5e6),
        (("gpu_average_package_power", "gauge", 90.0), {"gpu_id": "1"}, "amd", "gpu_power_watts", 90.0),
        (("gpu_energy_consumed", "counter", 3e6), {"gpu_id": "1"}, "amd", "gpu_energy_joules_total", 3.0),
        (("gpu_ecc_uncorrect_total", "gauge", 2.0), {"gpu_id": "1"}, "amd", "gpu_errors_total", 2.0),
        (("npu_chip_info_utilization", "gauge", 55.0), {"id": "1"}, "ascend", "gpu_utilisation_ratio", 0.55),
        (("npu_chip_info_hbm_used_memory", "gauge", 9.0), {"id": "1"}, "ascend", "gpu_memory_used_bytes", 9e6),
        (("npu_chip_info_used_memory", "gauge", 9.0), {"id": "1"}, "ascend", "gpu_memory_used_bytes", 9e6),
        (("npu_chip_info_aicore_current_freq", "gauge", 1500.0), {"id": "1"}, "ascend", "gpu_clock_hertz", 1.5e9),
        (("npu_chip_info_health_status", "gauge", 0.0), {"id": "1"}, "ascend", "gpu_healthy", 0.0),
        (("mlu_utilization", "gauge", 12.0), {"uuid": "1"}, "cambricon", "gpu_utilisation_ratio", 0.12),
        (("dcu_utilizationrate", "gauge", 12.0), {"device_id": "1"}, "hygon", "gpu_utilisation_ratio", 0.12),
        (("dcu_memorycap_bytes", "gauge", 12.0), {"device_id": "1"}, "hygon", "gpu_memory_total_bytes", 12.0),
        (("mx_board_power", "gauge", 250_000.0), {"uuid": "1"}, "metax", "gpu_power_watts", 250.0),
        (("mx_memory_used", "gauge", 2.0), {"uuid": "1", "type": "vram"}, "metax", "gpu_memory_used_bytes", 2048.0),
        (("hami_host_gpu_utilization_ratio", "gauge", 70.0), {"deviceuuid": "1"}, "hami", "gpu_utilisation_ratio", 0.7),
        (("nv_gpu_utilization", "gauge", 0.7), {"gpu_uuid": "1"}, "triton", "gpu_utilisation_ratio", 0.7),
        (("nv_energy_consumption", "counter", 11.0), {"gpu_uuid": "1"}, "triton", "gpu_energy_joules_total", 11.0),
    ],
)
def test_each_exporter_is_told_by_its_names_and_read_in_canonical_units(
    family: Family, labels: dict[str, str], exporter: str, signal: str, expected: float
) -> None:
    text = page([(family, labels)])
    engine = understood(text).engine
    assert engine is not None
    assert engine.name == exporter
    assert values(text)[signal] == {"gpu=1": pytest.approx(expected)}


def test_other_memory_than_the_cards_is_not_taken_for_it() -> None:
    family: Family = ("mx_memory_used", "gauge", 2.0)
    assert values(page([(family, {"uuid": "1", "type": "host"})])) == {}


def test_of_an_old_and_a_new_name_one_is_taken() -> None:
    series: list[tuple[Family, dict[str, str]]] = [
        (("gpu_power_usage", "gauge", 100.0), {"gpu_id": "0"}), (("gpu_package_power", "gauge", 101.0), {"gpu_id": "0"}),
    ]  # fmt: skip
    assert values(page(series))["gpu_power_watts"] == {"gpu=0": 100.0}
