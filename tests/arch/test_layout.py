"""Rules of shape: imports, sizes, what a package's ``__init__`` may hold, which names the wheel takes."""

import ast
import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import collector.engines
from goodwatch.core.engine import Engine
from tests.arch.sources import PACKAGES, ROOT, functions, lines_of, modules, shown

FUNCTION_LINES, MODULE_LINES = 50, 400

#: top-level names that the wheel shares with another distribution on purpose: name → reason
SHARED_NAMES: Final[dict[str, str]] = {}

#: handlers that may catch everything: "path:function" → reason
CATCH_ALL: Final[dict[str, str]] = {
    "goodwatch/app/answering.py:on_page": "a bug that one page brings out must not end the watch over the others; "
    "it is logged with its trace and counted",
}


def test_imports_point_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    assert linter.exists(), f"{linter}: import-linter is not installed beside this Python"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_modules_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES, f"{shown(path)}: split it by concept"
    long = {f"{one.name}:{one.lineno}": lines_of(one) for one in functions(ast.parse(text))}
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES} == {}


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_only_what_can_be_named_is_caught(path: Path) -> None:
    assert [found for found in catch_alls(path) if found not in CATCH_ALL] == []


def test_every_reason_for_a_catch_all_is_still_needed() -> None:
    found = {name for path in modules() for name in catch_alls(path)}
    assert set(CATCH_ALL) - found == set()


def catch_alls(path: Path) -> list[str]:
    """Functions of the module that swallow whatever comes, as "path:function" ("path:" at module level).

    A blanket handler that ends in a bare ``raise`` only cleans up: nothing is swallowed.
    """
    tree = ast.parse(path.read_text())
    inner = {id(node): one.name for one in functions(tree) for node in ast.walk(one)}
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and is_blanket(node.type)]
    swallowing = [node for node in handlers if ast.unparse(node.body[-1]) != "raise"]
    return [f"{shown(path)}:{inner.get(id(node), '')}" for node in swallowing]


def is_blanket(kind: ast.expr | None) -> bool:
    """Whether a handler for this catches everything; a tuple does when one of its members does."""
    if isinstance(kind, ast.Tuple):
        return any(is_blanket(member) for member in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("except:", True),
        ("except Exception:", True),
        ("except (OSError, BaseException):", True),
        ("except OSError:", False),
    ],
)
def test_a_blanket_handler_is_recognised(handler: str, expected: bool) -> None:
    (found,) = (node for node in ast.walk(ast.parse(f"try: 1\n{handler} 2")) if isinstance(node, ast.ExceptHandler))
    assert is_blanket(found.type) is expected


@pytest.mark.parametrize("path", [path for path in modules() if path.name == "__init__.py"], ids=shown)
def test_a_package_says_what_it_is_and_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{shown(path)}: say in a docstring what the package is"
    rest = [ast.unparse(node).partition("=")[0].strip() for node in tree.body[1:]]
    assert rest == (["__version__"] if shown(path) == "goodwatch/__init__.py" else [])


def engine_modules() -> list[str]:
    """Modules of the engine tables; helpers start with an underscore."""
    found = pkgutil.iter_modules(collector.engines.__path__)
    return [module.name for module in found if not module.name.startswith("_")]


@pytest.mark.parametrize("name", engine_modules())
def test_an_engine_is_one_table_of_its_own_name(name: str) -> None:
    module = importlib.import_module(f"collector.engines.{name}")
    engine = getattr(module, "ENGINE", None)
    assert isinstance(engine, Engine), (
        f"collector/engines/{name}.py: must define ENGINE, a goodwatch.core.engine.Engine"
    )
    assert engine.name == name


def test_the_wheel_holds_every_package_and_nothing_else() -> None:
    top = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert top - {"tests"} == set(PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_no_shipped_package_shadows_another(name: str) -> None:
    assert name not in sys.stdlib_module_names
    owners = set(importlib.metadata.packages_distributions().get(name, ())) - {"goodwatch"}
    assert name in SHARED_NAMES or not owners, f"{name}: also the name of a package of {', '.join(sorted(owners))}"
