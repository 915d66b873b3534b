"""Files of cases: a YAML list under ``cases``, or the list itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from goodwatch.core.errors import ConfigError

_MOST_BYTES: Final = 64 * 2**20


def read_cases(path: Path, needed: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """The cases of a file. Raises ConfigError when it cannot be read, holds none, or one lacks a ``needed`` key."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path}: larger than {_MOST_BYTES // 2**20} MiB; split it")
        text = path.read_text(encoding="utf-8")
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error
    cases = found.get("cases") if isinstance(found, Mapping) else found
    if not isinstance(cases, list):
        raise ConfigError(f"{path}: holds no list under 'cases'")
    for place, case in enumerate(cases):
        if not isinstance(case, Mapping):
            raise ConfigError(f"{path}: cases[{place}]: is no mapping")
        missing = [key for key in needed if key not in case]
        if missing:
            raise ConfigError(f"{path}: cases[{place}]: has no {missing[0]}")
    return cases
