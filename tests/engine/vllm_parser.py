"""What a real vLLM's argument parser takes, as JSON on the standard output; run by the engine's own Python.

``python vllm_parser.py`` lists its options; with a JSON list of argument lists on the standard input it also says of each
what the parser makes of it: {"options": {flag: {"takes": bool, "choices": [...]}}, "parsed": [{"ok", "values" | "error"}]}.
"""

import contextlib
import importlib
import io
import json
import sys
from typing import Any

#: modules moved between versions: the first that is there
_MAKERS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")


def found(names: tuple[str, ...], attribute: str) -> Any:
    """An attribute of the first module that has it."""
    for name in names:
        try:
            return getattr(importlib.import_module(name), attribute)
        except (ImportError, AttributeError):
            continue
    sys.exit(f"vllm_parser.py: {attribute} is in none of {', '.join(names)}: vLLM moved it, add its module")


def parser() -> Any:
    """The parser of ``vllm serve``."""
    return found(_MAKERS, "make_arg_parser")(found(_PARSERS, "FlexibleArgumentParser")())


def options(made: Any) -> dict[str, dict[str, Any]]:
    """Flag → whether it takes a value, and which."""
    known = {}
    for action in made._actions:
        for flag in action.option_strings:
            choices = [str(one) for one in action.choices] if action.choices else []
            known[flag] = {"takes": action.nargs != 0, "choices": choices}
    return known


def parsed(made: Any, argv: list[str]) -> dict[str, Any]:
    """The values that the parser sets, as text; or what it says."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            values = vars(made.parse_args(argv))
    except SystemExit:
        return {"ok": False, "error": said.getvalue()[-400:]}
    return {"ok": True, "values": {name: str(value) for name, value in values.items()}}


def main() -> None:
    """Print what was asked."""
    asked = json.loads(sys.stdin.read() or "[]")
    with contextlib.redirect_stdout(sys.stderr):
        made = parser()
        version = importlib.import_module("vllm").__version__
        answer = {"version": version, "options": options(made), "parsed": [parsed(made, one) for one in asked]}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
