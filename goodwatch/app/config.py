"""The configuration: one YAML file, the environment over it, frozen values out, all problems at once.

Relative paths start at the directory of the file. The settings themselves are in ``goodwatch.app._sections``.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from goodwatch.app import _schema
from goodwatch.app._checks import between_sections, warnings
from goodwatch.app._discovery_sections import ApiAccess, DnsSd, KubernetesSd, PrometheusSd
from goodwatch.app._fields import Context
from goodwatch.app._problems import Problem, SettingsError
from goodwatch.app._sections import Prices, Service, Settings, Slo
from goodwatch.app._source_sections import PrometheusEntry
from goodwatch.app._target_sections import (
    AcceleratorEntry,
    Authorization,
    BasicAuth,
    Credentials,
    FileSd,
    PerTarget,
    ScrapeSettings,
    TargetEntry,
    Tls,
)
from goodwatch.app._validate import read_sources, settle, validated

__all__ = [
    "AcceleratorEntry",
    "ApiAccess",
    "Authorization",
    "BasicAuth",
    "Credentials",
    "DnsSd",
    "FileSd",
    "KubernetesSd",
    "PerTarget",
    "Prices",
    "Problem",
    "PrometheusEntry",
    "PrometheusSd",
    "ScrapeSettings",
    "Service",
    "Settings",
    "SettingsError",
    "Slo",
    "TargetEntry",
    "Tls",
    "load",
    "settings_table",
    "warnings",
]


def load(path: Path, *, engines: Collection[str], environ: Mapping[str, str]) -> Settings:
    """Settings from a YAML file and the environment.

    Parameters
    ----------
    path
        The file. Relative paths in it start at its directory.
    engines
        Names that ``engine`` may have.
    environ
        Environment variables: for ``${NAME}`` in values, and ``GOODWATCH_SECTION__KEY`` over the file.

    Raises
    ------
    SettingsError
        A ``ConfigError`` with everything that is wrong, one line each, and the same as values in ``problems``.
    """
    schema = Settings.json_schema()
    sources = read_sources(path, environ, schema)
    context = Context(frozenset(engines), path.absolute().parent)
    settings, faults = validated(Settings, sources.data, context)
    settle(sources, schema, [*faults, *between_sections(sources.data, context)])
    assert settings is not None  # settle has raised otherwise
    return settings


def settings_table() -> str:
    """Every setting as a Markdown table: key, type, default, meaning."""
    rows = [f"| `{s.key}` | {s.type} | {s.default} | {s.meaning} |" for s in _schema.settings(Settings.json_schema())]
    return "\n".join(["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""])
