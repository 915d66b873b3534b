"""What names a person or opens a door is taken out of texts before they are kept. Pure.

Rules look at form only: a name or an address in plain words is not found. Where a form is ambiguous the rule prefers to
take too much of a secret and too little of a number (a card number must pass its checksum, an address must be one).
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_Keep = Callable[[re.Match[str]], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """One form: what matches ``pattern`` (group ``secret`` of it, where there is one) becomes ``[name]``.

    ``unless`` says of a match that it is none after all. ``mark``: a text without any of these characters cannot match.
    """

    name: str
    pattern: re.Pattern[str]
    unless: _Keep | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text that may be kept, and how much was taken out of it, by rule."""

    text: str
    taken: Mapping[str, int]


def luhn(digits: str) -> bool:
    """Whether the check digit of a card number is right (ISO/IEC 7812-1, annex B).

    Examples
    --------
    >>> luhn("4111111111111111"), luhn("4111111111111112")
    (True, False)
    """
    doubled = [int(d) if n % 2 == 0 else sum(divmod(2 * int(d), 10)) for n, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _no_card(match: re.Match[str]) -> bool:
    digits = _digits(match[0])
    return not 13 <= len(digits) <= 19 or len(set(digits)) == 1 or not luhn(digits)


def _no_ip(match: re.Match[str]) -> bool:
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return True
    # "::" alone, and times such as 1::2, are no addresses of anyone
    return ":" in match[0] and match[0].count(":") < 3


def _no_phone(match: re.Match[str]) -> bool:
    digits = _digits(match[0])
    if not 8 <= len(digits) <= 15:  # ITU-T E.164
        return True
    return re.fullmatch(r"\d{4}[-. ]\d\d[-. ]\d\d", match[0].strip()) is not None  # a date


def _no_secret(match: re.Match[str]) -> bool:
    """A value that is a word of an example, or a variable, gives nothing away."""
    value = match["secret"]
    return (
        value.startswith(("$", "[", "<", "{{", "%"))
        or value.strip("*.xX") == ""
        or (value.isdigit() and len(value) < 6)
    )


_SEP: Final = r"[ .\-\u00a0\u2010\u2011]"

#: in the order in which they are applied: what holds others comes first
RULES: Final = (
    Rule(
        "private-key",
        re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:.{0,20000}?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)|.{0,20000})", re.DOTALL),
        mark="-",
    ),
    Rule("url-password", re.compile(r"(?<=://)(?P<secret>[^\s/@:\[\]]{1,200}:[^\s/@\[\]]{1,200})(?=@)"), mark="@"),
    Rule("jwt", re.compile(r"\beyJ[\w-]{8,4000}\.[\w-]{4,8000}\.[\w-]{0,2000}"), mark="."),
    Rule("bearer", re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<secret>[\w.~+/-]{16,4000}={0,2})")),
    Rule(
        "key",
        re.compile(
            r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,200}|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,100}"  # OpenAI and alike, Stripe
            r"|\bgh[pousr]_[A-Za-z0-9]{20,255}|\bgithub_pat_\w{20,255}|\bglpat-[\w-]{16,100}"  # GitHub, GitLab
            r"|\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,60}|\bya29\.[\w-]{20,400}"  # AWS, Google
            r"|\bxox[abeoprs]-[\w-]{10,250}|\bhf_[A-Za-z0-9]{20,100}|\bnpm_[A-Za-z0-9]{30,60}|\bpypi-[\w-]{40,300}"
            r"|\bSG\.[\w-]{16,40}\.[\w-]{16,80}|\bdop_v1_[a-f0-9]{40,80}|\bAGE-SECRET-KEY-1[A-Z0-9]{40,80}"
        ),
    ),
    Rule(
        "secret",
        re.compile(
            r"(?i)(?:passw(?:or)?d|passwd|pwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token|access[_-]?token"
            r"|refresh[_-]?token|client[_-]?secret|private[_-]?key)[\w-]{0,20}[\"']?\s{0,3}(?:[:=]|=>|:=)\s{0,3}"
            r"(?P<quote>[\"'`]?)(?P<secret>[^\s\"'`,;)}\]]{6,500})"
        ),
        unless=_no_secret,
        mark=":=",
    ),
    Rule(
        "email",
        re.compile(
            r"(?<![\w.+%-])[\w.+%-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])"
        ),
        mark="@",
    ),
    Rule("iban", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"), unless=lambda m: not iban(m[0])),
    Rule("card", re.compile(r"(?<![\w.])(?<!\d[-.,])\d(?:[ -]?\d){12,18}(?![\w]|[.,]\d)"), unless=_no_card),
    Rule(
        "ip",
        re.compile(
            r"(?<![\w.:])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)"
            r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3}|(?<=::))(?![\w:])"
        ),
        unless=_no_ip,
        mark=".:",
    ),
    Rule(
        "phone",
        re.compile(
            rf"(?<![\w+.,/-])(?<!\d )(?:\+\d{{1,3}}{_SEP}?(?:\(0?\d{{1,4}}\){_SEP}?)?\d(?:{_SEP}?\d){{5,12}}"  # international
            rf"|\(\d{{3}}\){_SEP}?\d{{3}}{_SEP}\d{{4}}|(?:1{_SEP})?[2-9]\d\d{_SEP}[2-9]\d\d{_SEP}\d{{4}}"  # North America
            rf"|0\d{{1,4}}(?:{_SEP}\d{{2,4}}){{2,4}}|00\d(?:{_SEP}?\d){{8,13}}|1[3-9]\d{{9}})(?![\w]|[.,:/-]\d)"
        ),
        unless=_no_phone,
    ),
)  # fmt: skip


def iban(text: str) -> bool:
    """Whether an account number passes its check (ISO 13616, mod 97).

    Examples
    --------
    >>> iban("GB82 WEST 1234 5698 7654 32"), iban("GB83 WEST 1234 5698 7654 32")
    (True, False)
    """
    packed = text.replace(" ", "")
    if not 15 <= len(packed) <= 34:
        return False
    return int("".join(str(int(char, 36)) for char in packed[4:] + packed[:4])) % 97 == 1


class Redactor:
    """Takes out what the rules find: the operator's own rules first, then the built-in ones."""

    def __init__(self, own: Iterable[tuple[str, str]] = ()) -> None:
        """``own`` are (name, regular expression); raises ``ValueError`` for one that cannot be used."""
        self._rules = (*(Rule(name, usable(pattern)) for name, pattern in own), *RULES)

    def redact(self, text: str) -> Redacted:
        """``text`` with ``[name of the rule]`` in place of what was found."""
        taken: Counter[str] = Counter()
        for rule in self._rules:
            if rule.mark and not any(char in text for char in rule.mark):
                continue
            text = rule.pattern.sub(_Replacing(rule, taken), text)
        return Redacted(text, dict(taken))


class _Replacing:
    """What stands in place of one match."""

    def __init__(self, rule: Rule, taken: Counter[str]) -> None:
        self._rule, self._taken = rule, taken
        self._grouped = "secret" in rule.pattern.groupindex

    def __call__(self, match: re.Match[str]) -> str:
        rule = self._rule
        if not match[0] or (rule.unless is not None and rule.unless(match)):
            return match[0]
        self._taken[rule.name] += 1
        if not self._grouped:
            return f"[{rule.name}]"
        start, end = (at - match.start() for at in match.span("secret"))
        return f"{match[0][:start]}[{rule.name}]{match[0][end:]}"


#: a repetition inside a repetition: on a text that nearly fits, some take longer than the age of the text
_EXPLODES: Final = re.compile(r"\((?:[^()\\]|\\.)*(?<!\\)[+*](?:[^()\\]|\\.)*\)(?:[+*]|\{\d+,)")


def usable(pattern: str) -> re.Pattern[str]:
    """A rule of an operator, compiled; raises ``ValueError`` with a predicate when it cannot be used."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    if compiled.search("") is not None:
        raise ValueError("matches an empty text, and so every place of every text; make it longer")
    if _EXPLODES.search(pattern):
        raise ValueError("repeats a group that repeats itself, which can take for ever; write it without (…+)+")
    return compiled
