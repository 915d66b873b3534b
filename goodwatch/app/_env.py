"""The environment in the configuration: ``${NAME}`` inside text, ``GOODWATCH_SECTION__KEY`` over the file."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from goodwatch.app._problems import Loc, Problem
from goodwatch.app._schema import Schema, keys_at, node_at
from goodwatch.app._yaml import Document, parse

PREFIX: Final = "GOODWATCH_"

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def interpolated(text: str, environ: Mapping[str, str]) -> str:
    """Text with ``${NAME}`` and ``${NAME:-default}`` replaced, once; ``$${`` is a literal ``${``.

    As in a shell the default also stands in for an empty variable. Raises ``ValueError`` with what is wrong.
    """

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name = _NAME.fullmatch(match[1])
        if name is None or not match[0].endswith("}"):
            raise ValueError("'${' without a variable name and '}'; write ${NAME}, or $${ for a plain '${'")
        value = environ.get(name[1], "")
        if name[2] is not None:
            return value or name[2]
        if name[1] not in environ:
            raise ValueError(f"environment variable {name[1]} is not set; set it or write ${{{name[1]}:-default}}")
        return value

    return _REFERENCE.sub(replacement, text)


@dataclass(frozen=True, slots=True)
class Override:
    """One setting from the environment: where it goes and what it holds."""

    variable: str
    loc: Loc
    document: Document


def overrides(environ: Mapping[str, str], schema: Schema) -> tuple[list[Override], list[Problem]]:
    """Settings named by ``GOODWATCH_…`` variables, shortest path first, and what is wrong with them.

    Segments are separated by ``__`` and matched in any case; a number is a place in a list. Empty variables count as
    not set. A variable that names no setting is refused only where a setting was surely meant: the prefix is also
    that of a Kubernetes service called goodwatch (``GOODWATCH_SERVICE_HOST``) and of an operator's own ``${…}``.
    """
    found: list[Override] = []
    problems: list[Problem] = []
    for variable, text in sorted(environ.items(), key=lambda item: (item[0].count("__"), item[0])):
        if not variable.startswith(PREFIX) or not text.strip():
            continue
        loc = _loc(variable)
        if loc[0] not in keys_at(schema, ()):
            meant = _meant(variable, schema)
            if meant:
                problems.append(Problem(variable, None, "", f"no setting has this name; {meant}"))
            continue
        document = _document(text, is_text=(node_at(schema, loc) or {}).get("type") == "string")
        problems += [Problem(variable, None, "", fault.text) for fault in document.faults]
        if not document.faults:
            found.append(Override(variable, loc, document))
    return found, problems


def _document(text: str, *, is_text: bool) -> Document:
    """The value of a variable; where text belongs, what YAML reads as something else (``0.10``) is taken as it is."""
    document = parse(text)
    if is_text and (document.faults or not isinstance(document.value, str | None)):
        return Document(text.strip())
    return document


def _loc(variable: str) -> Loc:
    parts = variable.removeprefix(PREFIX).lower().split("__")
    return tuple(int(part) if re.fullmatch("[0-9]{1,4}", part) else part for part in parts)


def _meant(variable: str, schema: Schema) -> str:
    """What was surely meant by a name that is no setting; "" when it may be somebody else's."""
    name = variable.removeprefix(PREFIX)
    roots = keys_at(schema, ())
    nested = [f"{root}__{key}".upper() for root in roots for key in keys_at(schema, (root,))]
    single = next((key for key in nested if key.replace("__", "_") == name.upper()), None)
    if single:
        return f"did you mean {PREFIX}{single} (two underscores)?"
    close = difflib.get_close_matches(name.upper(), [root.upper() for root in roots], n=1, cutoff=0.9)
    if close:
        return f"did you mean {PREFIX}{close[0]}?"
    return f"the first part is one of: {', '.join(sorted(roots)).upper()}" if "__" in name else ""


def placed(data: object, loc: Loc, value: object) -> Any:
    """A copy of ``data`` with ``value`` at ``loc``; what is on the way and does not exist is made.

    Raises ``ValueError`` where a number names no place in a list, or a key is asked of one.
    """
    if not loc:
        return value
    part = loc[0]
    if isinstance(part, int):
        items = list(_container(data, list))
        if part > len(items):
            raise ValueError(f"no entry {part} in a list of {len(items)}; count from 0, one more adds an entry")
        items[part : part + 1] = [placed(items[part] if part < len(items) else None, loc[1:], value)]
        return items
    mapping = _container(data, dict)
    return {**mapping, part: placed(mapping.get(part), loc[1:], value)}


def _container(data: object, kind: type[Any]) -> Any:
    if data is None:
        return kind()
    if not isinstance(data, kind):
        what = "a list; use a number from 0" if isinstance(data, list) else "not what this name reaches into"
        raise ValueError(f"the setting is {what}")
    return data
