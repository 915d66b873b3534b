"""Types of single settings: addresses, names, paths, secrets. Errors are predicates (``goodwatch.core.section``)."""

import difflib
import glob
import ipaddress
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from goodwatch.app._files import read_secret

#: pydantic error type of a whole sentence (ctx: text), and of one about another key of the section (ctx: key, text)
SENTENCE: Final = "sentence"
SIBLING: Final = "sibling"

_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_FLAG: Final = re.compile(r"(?i)(api.?key|token|password|secret)$")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, token
#: labels that goodwatch sets itself on every series
_OWN_LABELS: Final = frozenset({"target", "service", "model", "engine", "engine_version", "rank", "le", "quantile"})


@dataclass(frozen=True, slots=True)
class Context:
    """What validation may know besides the file: engine names, and where relative paths start."""

    engines: Collection[str]
    directory: Path


def sibling(key: str, text: str) -> PydanticCustomError:
    """An error for another key of the section that is being validated; "" for the section itself."""
    return PydanticCustomError(SIBLING, "{text}", {"key": key, "text": text})


def sentence(text: str) -> PydanticCustomError:
    """An error that is not printed after the value."""
    return PydanticCustomError(SENTENCE, "{text}", {"text": text})


def text_of(value: str) -> str:
    """Text without surrounding white space, control characters or nothing in it; raises ``ValueError``."""
    if not value.strip():
        raise ValueError("is empty; write a text")
    if value != value.strip() or not value.isprintable():
        raise ValueError("has white space around it or characters that cannot be printed; remove them")
    return value


def engine_of(value: str, info: ValidationInfo) -> str:
    """An engine that is known, where the context tells which are."""
    context = info.context
    if not isinstance(context, Context) or value in context.engines:
        return value
    known = sorted(context.engines)
    close = difflib.get_close_matches(value, known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    raise ValueError(f"unknown engine {{value}}; known: {', '.join(known) or 'none'}{hint}")


def _split(url: str) -> SplitResult:
    """Parts of an http(s) URL; raises ``ValueError``."""
    if not url or any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError("is empty or has white space in it; write http://host:port/metrics")
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url):
        raise ValueError("has no scheme; write http:// or https:// before the host, as in http://host:8000/metrics")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("is not a URL; write http://host:port/metrics") from None  # the cause may hold a password
    if parts.scheme not in ("http", "https"):
        raise ValueError("has another scheme than http or https; write http://host:port/metrics")
    if parts.username is not None:
        raise ValueError("has a user or password in it; use basic_auth or authorization instead")
    if not parts.hostname or port == 0:
        raise ValueError("has no host, or port 0; write http://host:port/metrics")
    if parts.fragment:
        raise ValueError("has a '#' part, which is never sent; remove it")
    return parts


def _metrics_url(url: str) -> str:
    parts = _split(url)
    return parts._replace(path="/metrics").geturl() if parts.path in ("", "/") else parts.geturl()


def engine_args(value: str) -> str:
    """A command line on one line, without secrets; raises ``ValueError``."""
    text = " ".join(value.split())
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"is no command line: {error}; close the quotes") from error
    flags = [word.partition("=")[0] for word in words]
    secret = next((flag for flag in flags if flag.startswith("-") and _SECRET_FLAG.search(flag)), None)
    if secret is not None:
        raise sentence(f"{secret} is a secret, which nothing here needs; leave it out")
    return text


def _plain_url(url: str) -> str:
    return _split(url).geturl()


def host_port(url: str) -> str:
    """``host:port`` of a URL that was validated; the scheme's port where none is written."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def split_listen(value: str) -> tuple[str, int]:
    """Host (IPv6 without brackets) and port of ``host:port``; raises ``ValueError``."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/]+)):([0-9]{1,5})", value)
    if match is None or int(match[3]) > 65535:
        raise ValueError("is not host:port; write 127.0.0.1:9470, 0.0.0.0:9470 for all addresses, or '[::1]:9470'")
    return match[1] or match[2], int(match[3])


def _listen(value: str) -> str:
    split_listen(value)
    return value


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``; names other than localhost are taken as reachable."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def _path(value: Path, info: ValidationInfo) -> Path:
    text_of(str(value))
    return info.context.directory / value if isinstance(info.context, Context) else value


def _existing(value: Path, info: ValidationInfo) -> Path:
    path = _path(value, info)
    try:
        exists = path.is_file()
    except OSError:  # a name too long, a loop of links
        exists = False
    if isinstance(info.context, Context) and not exists:
        raise ValueError("is not a file; correct the path (relative paths start at the directory of this file)")
    return path


def _glob(value: str, info: ValidationInfo) -> str:
    text_of(value)
    # the directory of the file may hold characters that mean something in a pattern
    return str(Path(glob.escape(str(info.context.directory))) / value) if isinstance(info.context, Context) else value


def one_line(value: SecretStr) -> SecretStr:
    """A secret that can go into an HTTP header: one line of printable ASCII; raises ``ValueError``."""
    text = value.get_secret_value()
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError("is empty, has more than one line or has characters that no header can carry; correct it")
    return value


def _secret(value: object, info: ValidationInfo) -> object:
    """The secret itself, or the content of the file that the field ``NAME_file`` before it names."""
    name = str(info.field_name)
    if f"{name}_file" not in info.data:
        return value  # the path was wrong and has said so
    path = info.data[f"{name}_file"]
    given = not (isinstance(value, SecretStr) and not value.get_secret_value())
    if path is None:
        if not given:
            raise sibling(name, f"missing; write {name}, or {name}_file with the path of a file that holds it")
        return value
    if given:
        raise sibling(f"{name}_file", f"written beside {name}; keep one of them")
    try:
        return SecretStr(read_secret(path))
    except ValueError as error:
        raise sibling(f"{name}_file", f"{path} {error}") from None


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name) or name.startswith("__"):
        raise ValueError("is not a label name; use letters, digits and _, no digit first, no __ first")
    if name in _OWN_LABELS:
        raise ValueError("is a label that goodwatch sets itself; choose another name")
    return name


def _header(name: str) -> str:
    if not _HEADER.fullmatch(name):
        raise ValueError("is not the name of an HTTP header; use letters, digits and -")
    return name


Text = Annotated[str, AfterValidator(text_of)]
EngineName = Annotated[str, AfterValidator(engine_of)]
MetricsUrl = Annotated[str, AfterValidator(_metrics_url), WithJsonSchema({"type": "string", "x-type": "URL"})]
PlainUrl = Annotated[str, AfterValidator(_plain_url), WithJsonSchema({"type": "string", "x-type": "URL"})]
EngineArgs = Annotated[str, AfterValidator(engine_args)]
Listen = Annotated[str, AfterValidator(_listen), WithJsonSchema({"type": "string", "x-type": "host:port"})]
_AS_PATH: Final = WithJsonSchema({"type": "string", "x-type": "path"})
AnyPath = Annotated[Path, AfterValidator(_path), _AS_PATH]
ExistingFile = Annotated[Path, AfterValidator(_existing), _AS_PATH]
Glob = Annotated[str, AfterValidator(_glob), WithJsonSchema({"type": "string", "x-type": "glob"})]
HeaderSecret = Annotated[SecretStr, AfterValidator(one_line)]
Labels = dict[Annotated[str, AfterValidator(_label)], str]
Headers = dict[Annotated[str, AfterValidator(_header)], HeaderSecret]
#: needs a field ``NAME_file: AnyPath | None`` before it, and ``Field(NOT_GIVEN, validate_default=True)``
SecretOrFile = Annotated[
    SecretStr,
    BeforeValidator(_secret),
    AfterValidator(one_line),
    PlainSerializer(str, when_used="json"),
    Field(json_schema_extra=lambda schema: schema.pop("default", None)),
]
NOT_GIVEN: Final = SecretStr("")
