"""Adapters found by themselves: over a real package made for the test."""

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from goodwatch.core.registry import adapters

KIND = "from tests.core.test_registry import Adapter\n"


@dataclass(frozen=True)
class Adapter:
    name: str


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "found_here"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text(f"{KIND}IT = Adapter('first')\n")
    (folder / "_shared.py").write_text("raise RuntimeError('a helper is not imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("found_here")]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def test_every_module_but_helpers_brings_one_by_its_own_name(package: Path) -> None:
    (package / "two.py").write_text(f"{KIND}IT = Adapter('second')\n")
    assert set(adapters(import_module("found_here"), "IT", Adapter)) == {"first", "second"}


def test_what_is_something_else_is_named(package: Path) -> None:
    (package / "odd.py").write_text("IT = 'a text'\n")
    with pytest.raises(TypeError, match="found_here: 'a text' is no Adapter"):
        adapters(import_module("found_here"), "IT", Adapter)
