"""Write requirements.lock and requirements-dev.lock from what pyproject.toml asks for.

``python tools/lock.py`` takes the newest versions that fit; ``--check`` changes nothing and exits 1 when the files
no longer answer pyproject.toml (a newer release somewhere is no fault). Both ask pip, with whatever index it is set
up for, to resolve for every Python named with ``--python``; where their answers differ a line gets a marker.
Only the standard library is used, so that the tool runs before anything is installed.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
RUNTIME, DEV = "requirements.lock", "requirements-dev.lock"
# hatchling asks for it only while it makes an editable installation, so no metadata names it.
BUILD_EXTRA: Final = ("editables",)
PYTHONS: Final = ("python3.11", "python3.12")

#: distribution → version, for one Python
Pins = Mapping[str, str]

#: extras that nobody's tests run: a load generator of other people, with a hundred dependencies of its own
UNLOCKED: Final = frozenset({"bench"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What pyproject.toml asks for: to run and install goodwatch, and to work on it."""

    runtime: tuple[str, ...]
    dev: tuple[str, ...]


def wanted(pyproject: Path) -> Wanted:
    """Requirements of the project, its extras, its build back end and its dev group."""
    said = tomllib.loads(pyproject.read_text())
    project = said["project"]
    extras = [
        entry for name, extra in project["optional-dependencies"].items() if name not in UNLOCKED for entry in extra
    ]
    build = [*said["build-system"]["requires"], *BUILD_EXTRA]
    return Wanted((*project["dependencies"], *extras, *build), tuple(said["dependency-groups"]["dev"]))


def normal(name: str) -> str:
    """A distribution's name in the one spelling that all spellings share (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(python: str, requirements: Sequence[str], constraints: Sequence[str]) -> Pins:
    """What pip would install into an empty environment; raises CalledProcessError when nothing fits."""
    with tempfile.TemporaryDirectory() as folder:
        limits = Path(folder) / "constraints.txt"
        limits.write_text("".join(f"{line}\n" for line in constraints))
        report = Path(folder) / "report.json"
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        what = ["--dry-run", "--ignore-installed", "--report", str(report), "--constraint", str(limits)]
        subprocess.run([*pip, *what, *requirements], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        found = json.loads(report.read_text())["install"]
    metadata = [entry["metadata"] for entry in found]
    return {normal(entry["name"]): entry["version"] for entry in metadata}


def version_of(python: str) -> str:
    """Its version as markers spell it: 3.11; exits when it cannot be run."""
    ask = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        done = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        sys.exit(
            f"lock.py: {python} cannot be run; the files need its answer too: install it, or name others (--python)"
        )
    return done.stdout.strip()


def merge(by_python: Mapping[str, Pins]) -> list[str]:
    """One line a distribution and version; a marker where not every Python has it."""
    holders: dict[tuple[str, str], list[str]] = {}
    for python, pins in by_python.items():
        for pin in pins.items():
            holders.setdefault(pin, []).append(python)
    lines = []
    for (name, version), pythons in sorted(holders.items()):
        marker = " or ".join(f'python_version == "{python}"' for python in pythons)
        lines.append(f"{name}=={version}" + (f" ; {marker}" if len(pythons) < len(by_python) else ""))
    return lines


def build_locks(asked: Wanted, pythons: Sequence[str], constraints: Sequence[str]) -> dict[str, str]:
    """File name → text. The dev file holds only what it adds, and includes the other."""
    runtime: dict[str, Pins] = {}
    added: dict[str, Pins] = {}
    for python in pythons:
        version = version_of(python)
        both = resolve(python, [*asked.runtime, *asked.dev], constraints)
        pins = [f"{name}=={number}" for name, number in both.items()]
        runtime[version] = resolve(python, asked.runtime, pins)
        added[version] = {name: number for name, number in both.items() if name not in runtime[version]}
    head = f"# Written by tools/lock.py (make lock) for Python {', '.join(runtime)}; do not edit.\n"
    return {
        RUNTIME: head + "".join(f"{line}\n" for line in merge(runtime)),
        DEV: head + f"-r {RUNTIME}\n" + "".join(f"{line}\n" for line in merge(added)),
    }


def pinned(folder: Path) -> list[str]:
    """The pins of both files, as constraints."""
    lines = [line for name in (RUNTIME, DEV) for line in (folder / name).read_text().splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


def main() -> None:
    """Write the files, or check them; exits 1 with what is wrong."""
    parser = argparse.ArgumentParser(description="Write the lock files from pyproject.toml.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the files do not fit")
    parser.add_argument("--python", action="append", help=f"resolve for this one (default: {' and '.join(PYTHONS)})")
    parser.add_argument("--folder", type=Path, default=ROOT, help="where pyproject.toml and the lock files are")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    asked = wanted(folder / "pyproject.toml")
    constraints = pinned(folder) if arguments.check else []
    try:
        texts = build_locks(asked, arguments.python or PYTHONS, constraints)
    except subprocess.CalledProcessError as error:
        sys.exit(f"lock.py: pip found no versions that fit (status {error.returncode}); what it said is above")
    if not arguments.check:
        for name, text in texts.items():
            (folder / name).write_text(text)
        return
    if off := [name for name, text in texts.items() if (folder / name).read_text() != text]:
        sys.exit(f"{' and '.join(off)}: not what pyproject.toml asks for; run `make lock` and commit the result")


if __name__ == "__main__":
    main()
