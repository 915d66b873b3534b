"""The models and accelerators that goodwatch knows by name: package data, with the source of every row."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

import planner.engines
from goodwatch.core.errors import ConfigError
from goodwatch.core.registry import adapters
from planner.budget import EngineBudget
from planner.gpu import Gpu, gpu_from_row
from planner.model_facts import ModelFacts, facts_from_config


def _rows(name: str) -> Any:
    text = (files("planner") / "models" / name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both loaders are safe


@cache
def _configs() -> Mapping[str, Mapping[str, Any]]:
    rows: Mapping[str, Mapping[str, Any]] = _rows("configs.yaml")["models"]
    return rows


@cache
def accelerators() -> tuple[Gpu, ...]:
    """Every accelerator of the catalogue."""
    return tuple(gpu_from_row(row) for row in _rows("accelerators.yaml")["accelerators"])


def model_names() -> tuple[str, ...]:
    """Names of the models in the catalogue, sorted."""
    return tuple(sorted(_configs()))


@cache
def known_model(name: str) -> ModelFacts:
    """Facts of a model of the catalogue, by its full name or by the part after the slash (case does not matter).

    Raises
    ------
    ConfigError
        The name is not known or not unique; the message says what is near.
    """
    wanted = name.casefold()
    hits = [one for one in _configs() if wanted in (one.casefold(), one.partition("/")[2].casefold())]
    if not hits:
        hits = [one for one in _configs() if wanted in one.casefold()]
    if len(hits) != 1:
        near = hits or get_close_matches(name, model_names(), 5, 0.4)
        what = "fits several models" if hits else "unknown model"
        hint = f"; did you mean {', '.join(sorted(near)[:5])}?" if near else ""
        raise ConfigError(f"--model {name}: {what}{hint} A folder or a config.json of the model works too.")
    row = _configs()[hits[0]]
    needed = ("num_hidden_layers", "hidden_size")
    if any(key not in row for key in needed):
        raise ConfigError(
            f"--model {name}: the catalogue has no sizes of this model; give its config.json (no figure is guessed)"
        )
    told = str(row.get("verification", "unverified"))
    return facts_from_config(hits[0], row, f"built-in catalogue, {told}")


@cache
def engine_budgets() -> Mapping[str, EngineBudget]:
    """Every engine of ``planner.engines`` by name; modules that start with ``_`` are no engines."""
    return adapters(planner.engines, "ENGINE", EngineBudget)
