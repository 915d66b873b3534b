"""The product's files, as the rules of this folder look at them."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: Final[list[str]] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def modules() -> list[Path]:
    """Python files of the packages that ship, and of tools/."""
    return sorted(path for folder in [*PACKAGES, "tools"] for path in (ROOT / folder).rglob("*.py"))


def shipped_texts() -> list[Path]:
    """What runs or is copied by users: packages, tools, deploy/, and the build files."""
    folders = [*PACKAGES, "tools", "deploy", ".ci"]
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files = [ROOT / name for name in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml")]
    return sorted(path for path in [*found, *files] if "__pycache__" not in path.parts)


def shown(path: Path) -> str:
    """The path as a person names it."""
    return str(path.relative_to(ROOT))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a module, methods and inner ones included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the end: documentation costs nothing."""
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    if not body or body[-1].end_lineno is None:
        return 0
    return body[-1].end_lineno - body[0].lineno + 1
