"""The tables of flags: what exists in which version, and that every row can be used."""

from pathlib import Path

import pytest
import yaml

from goodwatch.core.errors import ConfigError
from planner.catalogue import engine_budgets
from planner.configure.values import Configuration
from planner.flags import NEWEST, OLDEST, engines, exists, flags_of, settings
from planner.version import parsed

FOLDER = Path(__file__).parents[3] / "planner/flags_by_engine"


def test_every_engine_that_can_be_sized_can_be_written() -> None:
    assert set(engines()) == set(engine_budgets())


@pytest.mark.parametrize("name", engines())
def test_rows_name_settings_that_are_known(name: str) -> None:
    for row in flags_of(name).rows:
        assert row.of in Configuration.__dataclass_fields__, row
        assert row.of in settings()
        assert row.flag or row.key or row.implied or row.implied_prefix, row
        assert row.since == OLDEST or row.until == NEWEST or row.since <= row.until


@pytest.mark.parametrize("name", engines())
def test_versions_of_rows_are_versions_that_were_read(name: str) -> None:
    table = flags_of(name)
    if name != "vllm-ascend":  # its rows are vLLM's
        told = {one for row in table.rows for one in (row.since, row.until)} - {OLDEST, NEWEST}
        assert told <= set(table.read_in)
    assert list(table.read_in) == sorted(table.read_in)


def test_every_neutral_setting_has_a_reason() -> None:
    assert set(Configuration.__dataclass_fields__) == set(settings())


@pytest.mark.parametrize(
    ("told", "since", "until", "there"),
    [
        ("0.8.5", (0, 8, 2), NEWEST, True),
        ("0.8.1", (0, 8, 2), NEWEST, False),
        ("0.8", (0, 8, 2), NEWEST, False),  # some 0.8 do not have it
        ("0.8", (0, 8, 0), NEWEST, True),
        ("0.8.5.post1", (0, 8, 5), (0, 8, 5), True),
        ("0.8", OLDEST, (0, 8, 0), False),  # some 0.8 no longer have it
        ("0.6.6", OLDEST, (0, 8, 0), True),
    ],
)
def test_a_flag_exists_where_all_that_the_version_leaves_open_has_it(
    told: str, since: tuple[int, ...], until: tuple[int, ...], there: bool
) -> None:
    assert exists(since, until, parsed(told, (1,))) is there


# vLLM's release notes: V1's speculative_config took the place of --speculative-model in 0.8
def test_a_renamed_flag_is_written_by_the_name_of_the_version() -> None:
    table = flags_of("vllm")
    assert "--speculative-model" in table.spellings(table.version("0.6.6"))
    assert "--speculative-config" not in table.spellings(table.version("0.6.6"))
    assert "--speculative-config" in table.spellings(table.version("0.13.0"))
    assert "--speculative-model" not in table.spellings(table.version("0.13.0"))


def test_versions_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"is not a version; write it as 0\.32\.0"):
        flags_of("vllm").version("latest")
    with pytest.raises(ConfigError, match=r"known from 0\.4\.3 on"):
        flags_of("vllm").version("0.2.7")
    with pytest.raises(ConfigError, match=r"known are llama\.cpp, lmdeploy"):
        flags_of("tgi")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[a-z]*.yaml")), ids=lambda path: path.name)
def test_a_table_has_a_source_and_a_date_and_no_key_that_nobody_reads(path: Path) -> None:
    raw = yaml.safe_load(path.read_text())
    assert raw["source"]
    assert raw["as_of"]
    read = {
        "setting", "of", "kind", "flag", "also", "member", "key", "since", "until", "values", "argv", "implied",
        "implied_prefix", "with", "when", "default", "facts", "facts_off", "why",
    }  # fmt: skip
    assert {key for row in raw["flags"] for key in row} <= read
