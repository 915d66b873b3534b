"""The lock files pin everything that pyproject.toml asks for, and name no package index."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.arch.sources import PYPROJECT, ROOT

RUNTIME, DEV = "requirements.lock", "requirements-dev.lock"
PIN: Final = re.compile(r"[a-z0-9-]+==[^\s;]+( ; python_version == \"3\.\d+\"( or python_version == \"3\.\d+\")*)?")


def pins(name: str) -> dict[str, Version]:
    """Distribution → version of the lines that hold for this Python; the dev file includes the other."""
    found: dict[str, Version] = {}
    for line in lines(name):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            found[canonicalize_name(requirement.name)] = Version(next(iter(requirement.specifier)).version)
    return found | pins(RUNTIME) if name == DEV else found


def lines(name: str) -> list[str]:
    """The pins as written."""
    return [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith(("#", "-r"))]


def asked() -> dict[str, list[str]]:
    """Lock file → requirements of pyproject.toml that it must answer."""
    project = PYPROJECT["project"]
    extras = [
        entry
        for name, extra in project["optional-dependencies"].items()
        if name != "bench"  # a load generator of other people, which no test runs
        for entry in extra
    ]
    runtime = [*project["dependencies"], *extras, *PYPROJECT["build-system"]["requires"]]
    return {RUNTIME: runtime, DEV: [*runtime, *PYPROJECT["dependency-groups"]["dev"]]}


@pytest.mark.parametrize("name", [RUNTIME, DEV])
def test_every_line_is_one_exact_version(name: str) -> None:
    assert [line for line in lines(name) if not PIN.fullmatch(line)] == []


def test_the_dev_file_includes_the_runtime_file_and_repeats_nothing() -> None:
    assert f"-r {RUNTIME}\n" in (ROOT / DEV).read_text()
    assert set(lines(DEV)) & set(lines(RUNTIME)) == set()


@pytest.mark.parametrize(("name", "requirement"), [(name, one) for name, ones in asked().items() for one in ones])
def test_what_pyproject_asks_for_is_pinned_within_its_limits(name: str, requirement: str) -> None:
    wanted = Requirement(requirement)
    version = pins(name).get(canonicalize_name(wanted.name))
    assert version is not None, f"{name}: {wanted.name} is missing; run `make lock`"
    assert version in wanted.specifier, f"{name}: {wanted.name} {version} is not {wanted.specifier}; run `make lock`"


@pytest.mark.parametrize("name", [RUNTIME, DEV])
def test_what_the_pinned_ask_for_is_pinned_too(name: str) -> None:
    held = pins(name)
    missing = [f"{owner} asks for {wanted}" for owner in held for wanted in needs(owner) if not answers(held, wanted)]
    assert missing == []


def needs(distribution: str) -> list[Requirement]:
    """What an installed distribution asks for on this Python, extras aside."""
    try:
        said = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []  # pinned and not installed here: a tool that this environment does without
    found = [Requirement(line) for line in said]
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def answers(held: dict[str, Version], wanted: Requirement) -> bool:
    """Whether a pin fits the requirement."""
    version = held.get(canonicalize_name(wanted.name))
    return version is not None and wanted.specifier.contains(version, prereleases=True)


def test_the_tool_says_which_python_it_cannot_run(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools/lock.py"), "--check", "--python", str(tmp_path / "python3.99")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "python3.99 cannot be run" in done.stderr
