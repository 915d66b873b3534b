"""YAML into plain values, with the line of every key and with all that is wrong rather than the first thing.

Only what JSON can say is read, plus dates: no tags, no binary, no sets. Anchors, aliases and merge keys work; an
alias is the same object again, so a page of nested aliases costs no more than it is long.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from goodwatch.app._problems import Fault, Loc

_TAG: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = (f"{_TAG}str", f"{_TAG}value", f"{_TAG}merge")
_SCALAR_TAGS: Final = tuple(f"{_TAG}{name}" for name in ("int", "float", "bool", "null", "timestamp"))
_NO_TAGS: Final = "tags are not supported; put text that starts with '!' in quotes"
_TOO_DEEP: Final = "nested too deeply; flatten it"

#: the parser's words → ours; the parser's may quote what was written, and that can be a secret
_SYNTAX: Final = (
    ("'\\t'", "a tab; indent with spaces"),
    (" alias", "text that starts with '*' is an alias in YAML; put it in quotes"),
    ("tag", _NO_TAGS),
    ("anchor", "text that starts with '&' is an anchor in YAML; put it in quotes"),
    ("expected <block end>", "the indentation or a list mark does not fit the lines above; align it"),
    ("mapping values are not allowed", "a ': ' where no key can be; put text that holds ': ' in quotes, or indent"),
    ("could not find expected ':'", "a key without ':'; write 'key: value'"),
    ("but found another document", "a second document ('---'); write one document a file"),
)


class Unread:
    """Stands where a value could not be read: fits no type, and what it breaks has been reported."""


UNREAD: Final = Unread()


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML text: ``value`` in plain types (None when empty) and the nodes that know their lines."""

    value: object = None
    root: yaml.Node | None = None
    faults: tuple[Fault, ...] = ()

    def line(self, loc: Loc) -> int:
        """Line, from 1, of the key or list entry at ``loc``; of its nearest parent where there is none."""
        return self._walk(loc)[0]

    def raw(self, loc: Loc) -> str | None:
        """The scalar at ``loc`` as it was written, None where there is none."""
        node = self._walk(loc)[1]
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def _walk(self, loc: Loc) -> tuple[int, yaml.Node | None]:
        node, line = self.root, 0 if self.root is None else self.root.start_mark.line
        for part in loc:
            if isinstance(node, yaml.MappingNode) and isinstance(part, str):
                pair = next((p for p in _pairs(node) if p[0].value == part), None)
                if pair is None:
                    return line + 1, None
                line, node = pair[0].start_mark.line, pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            else:
                return line + 1, None
        return line + 1, node


def parse(text: str, resolve: Callable[[str], str] = str) -> Document:
    """Read one YAML document; what is wrong is in ``faults``, never raised.

    ``resolve`` maps every text value (not keys) and may raise ``ValueError`` with what is wrong.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        return _broken("an unprintable character; remove it", text.count("\n", 0, error.position))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return _broken(_syntax(error), mark.line if mark else 0)
    except RecursionError:
        return _broken(_TOO_DEEP, 0)
    if root is None:
        return Document()
    reader = _Reader(resolve)
    try:
        value = reader.read(root, ())
    except RecursionError:
        return _broken(_TOO_DEEP, 0)
    return Document(value, root, tuple(reader.faults))


def _broken(text: str, line: int) -> Document:
    return Document(faults=(Fault((), text, line + 1),))


def _syntax(error: yaml.MarkedYAMLError) -> str:
    said = f"{error.problem or 'broken'} {error.context or ''}".strip()
    return next((text for sign, text in _SYNTAX if sign in said), f"not valid YAML: {said}; correct it")


def _pairs(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Entries with the one that counts first: own before merged, merged ones in their order."""
    seen: set[int] = set()
    waiting: list[yaml.Node] = [node]
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, yaml.SequenceNode):
            waiting[:0] = current.value
        elif isinstance(current, yaml.MappingNode):
            yield from ((key, value) for key, value in current.value if not _is_merge(key))
            waiting[:0] = [value for key, value in current.value if _is_merge(key)]


def _is_merge(key: yaml.Node) -> bool:
    return key.tag == f"{_TAG}merge"


@dataclass(slots=True)
class _Reader:
    """Nodes into values; remembers what it read, so that an alias is read once."""

    resolve: Callable[[str], str]
    faults: list[Fault] = field(default_factory=list)
    _done: dict[int, object] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)
    _resolver: yaml.resolver.Resolver = field(default_factory=yaml.resolver.Resolver)
    _constructor: yaml.constructor.SafeConstructor = field(default_factory=yaml.constructor.SafeConstructor)

    def read(self, node: yaml.Node, loc: Loc) -> object:
        if id(node) in self._done:
            return self._done[id(node)]
        if id(node) in self._open:
            return self._fault(loc, node, "an alias to what it is part of; write it out")
        self._open.add(id(node))
        value: object
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            value = self._mapping(node, loc)
        elif isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            value = [self.read(item, (*loc, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode):
            value = self._scalar(node, loc)
        else:
            value = self._fault(loc, node, _NO_TAGS)
        self._open.discard(id(node))
        self._done[id(node)] = value
        return value

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        self._check_keys(node, loc)
        result: dict[str, object] = {}
        for key, value in _pairs(node):
            if isinstance(key, yaml.ScalarNode) and key.tag in _TEXT_TAGS and key.value not in result:
                result[key.value] = self.read(value, (*loc, key.value))
        return result

    def _check_keys(self, node: yaml.MappingNode, loc: Loc) -> None:
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if _is_merge(key):
                entries = value.value if isinstance(value, yaml.SequenceNode) else [value]
                if not all(isinstance(entry, yaml.MappingNode) for entry in entries):
                    self.faults.append(Fault((*loc, "<<"), "not a mapping; merge an alias of a mapping", line))
            elif not isinstance(key, yaml.ScalarNode) or key.tag not in _TEXT_TAGS:
                self.faults.append(Fault(loc, "a key is not text; put it in quotes", line))
            elif not _is_unicode(key.value):
                self.faults.append(Fault(loc, "a key is not valid Unicode; correct it", line))
            elif key.value in first:
                text = f"written twice (first in line {first[key.value]}); keep one"
                self.faults.append(Fault((*loc, key.value), text, line))
            else:
                first[key.value] = line

    def _scalar(self, node: yaml.ScalarNode, loc: Loc) -> object:
        if node.tag in _TEXT_TAGS:
            if not _is_unicode(node.value):
                return self._fault(loc, node, "not valid Unicode; correct it")
            try:
                return self.resolve(node.value)
            except ValueError as error:
                return self._fault(loc, node, str(error))
        # a tag that the text alone would not get was written out: the constructor cannot be trusted with it
        if node.tag not in _SCALAR_TAGS or self._implied_tag(node) != node.tag:
            return self._fault(loc, node, _NO_TAGS)
        try:
            return self._constructor.construct_object(node)
        except (ValueError, OverflowError):
            kind = "date" if node.tag.endswith("timestamp") else "number"
            return self._fault(loc, node, f"not a valid {kind}; correct it or put it in quotes")

    def _implied_tag(self, node: yaml.ScalarNode) -> object:
        return self._resolver.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]

    def _fault(self, loc: Loc, node: yaml.Node, text: str) -> object:
        self.faults.append(Fault(loc, text, node.start_mark.line + 1))
        return UNREAD


def _is_unicode(text: str) -> bool:
    return re.search("[\ud800-\udfff]", text) is None
