"""Configuration files for tests, named by a relative path as an operator would."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from goodwatch.app.config import Settings, SettingsError, load

ENGINES = {"vllm", "sglang", "trtllm", "triton_trtllm"}

Read = Callable[..., Settings]


def read_here(text: str | bytes, environ: Mapping[str, str] | None = None) -> Settings:
    """Load a text as goodwatch.yaml in the current directory."""
    path = Path("goodwatch.yaml")
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, engines=ENGINES, environ=environ or {})


def wrong(read: Read, text: str | bytes, environ: Mapping[str, str] | None = None) -> list[str]:
    """Lines of the error that a text leads to."""
    with pytest.raises(SettingsError) as caught:
        read(text, environ)
    assert str(caught.value).split("\n") == [str(problem) for problem in caught.value.problems]
    return str(caught.value).split("\n")


def target(**more: object) -> str:
    """A configuration with one target."""
    return yaml.safe_dump({"targets": [{"url": "http://gpu1:8000", **more}]})
