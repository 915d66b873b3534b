"""What ships under ``deploy/``, read."""

import json
from pathlib import Path
from typing import Any, Final

import jsonschema  # type: ignore[import-untyped]
import yaml

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DATA: Final = Path(__file__).parent / "data"


def documents(path: Path) -> list[Any]:
    """All YAML documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def schema(name: str) -> Any:
    """A JSON Schema of the test data."""
    return json.loads((DATA / name).read_text())


def complaints(made: Any, held_to: Any) -> list[str]:
    """What a schema has against a document."""
    validator = jsonschema.Draft7Validator(held_to)  # both say "definitions" or "$defs", which it reads alike
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in validator.iter_errors(made)
    ]
