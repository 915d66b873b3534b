"""The configuration loader under mutated files: a file loads, or every problem names its line; a secret never shows."""

import random
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from goodwatch.app.config import Settings, SettingsError, load, warnings
from goodwatch.app.engines import known_engines
from tests.app.test_config_errors import BROKEN, KEYS
from tests.fuzz.driver import Wrong

_ROOT: Final = Path(__file__).parent.parent.parent
_SECRET: Final = "hunter2-S3cr3t"
_PLACE: Final = re.compile(r"[^:\n]*goodwatch\.yaml:(\d+): \S")
#: said of a file as a whole, or of what is in the environment: there is no line
_WHOLE: Final = ("is not UTF-8 text", "is larger than", "GOODWATCH_")
_FLOOR_S, _PER_BYTE_S = 1.0, 200e-6

TOKENS: Final[Sequence[bytes]] = (
    b": ", b":\n", b"- ", b"\n  ", b"\n    - ", b"{", b"}", b"[", b"]", b", ", b"'", b'"', b"#", b"&a ", b"*a", b"!!int ",
    b"!x ", b"<<: *a", b"? ", b"| \n", b"> \n", b"---\n", b"...\n", b"%YAML 1.1\n", b"\t", b"~", b"null", b"true", b"0", b"-1",
    b"1e400", b".nan", b".inf", b"0x10", b"1:30", b"2026-01-31", b"9" * 400, b"99%", b"0.99", b"15s", b"-5s", b"1e9s", b"50MB",
    b"http://a:1", b"http://u:p@a:1", b"https://[::1]:8000/metrics", b"${SECRET}", b"${NOPE}", b"${NOPE:-1}", b"${", b"$${x}",
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85", "ä".encode(), b"a" * 300, b"[" * 60,
    *(f"{key}: ".encode() for key in KEYS),
)  # fmt: skip


class ConfigFuzz:
    """Files for the loader, with an environment that holds a secret."""

    tokens = TOKENS

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="goodwatch-fuzz-"))
        self.seeds = [*_documented(), *_broken()]
        self._engines = frozenset(known_engines())

    def outcome(self, body: bytes, rng: random.Random) -> str:
        """Whether it loads, else what kinds of things are wrong."""
        file = self.folder / "goodwatch.yaml"
        file.write_bytes(body)
        environ = {"SECRET": _SECRET, **_override(rng)}
        began_s = time.process_time()
        try:
            settings = load(file, engines=self._engines, environ=environ)
        except SettingsError as error:
            self._check(error, body, environ)
            return " | ".join(sorted({_words(p.text) for p in error.problems})[:3])
        finally:
            took_s = time.process_time() - began_s
        if took_s > _FLOOR_S + _PER_BYTE_S * len(body):
            raise Wrong(f"{len(body)} bytes took {took_s:.2f} s")
        return _loaded(settings)

    @staticmethod
    def _check(error: SettingsError, body: bytes, environ: Mapping[str, str]) -> None:
        lines = len(re.split(rb"\r\n|[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9]", body)) + 1
        if not error.problems:
            raise Wrong("an error without a problem")
        for said in str(error).split("\n"):
            place = _PLACE.match(said)
            if place is None and not any(word in said for word in _WHOLE):
                raise Wrong(f"no file and line: {said[:200]!r}")
            if place is not None and not 1 <= int(place[1]) <= lines:
                raise Wrong(f"line {place[1]} of a file of {lines} lines: {said[:200]!r}")
        if _SECRET in str(error) or _SECRET in repr(error):
            raise Wrong(f"the secret shows: {str(error)[:200]!r}")
        if any(len(p.text) > 1_000 for p in error.problems):
            raise Wrong("a problem of more than 1,000 characters")


def _loaded(settings: Settings) -> str:
    advice = warnings(settings)
    shown = repr(settings)
    if any(_SECRET in one for one in advice):
        raise Wrong("the secret shows in a warning")
    return f"loads {len(settings.targets)} {len(settings.services)} {len(advice)} {'$' in shown}"


def _words(text: str) -> str:
    """A problem's sentence without what was quoted: its kind."""
    return re.sub(r"'[^']*'|\d[\d.]*", "…", text)[:60]


def _override(rng: random.Random) -> dict[str, str]:
    """Now and then a setting comes from the environment."""
    if rng.random() < 0.9:
        return {}
    key = rng.choice(
        ("SCRAPE__INTERVAL", "TARGETS__0__URL", "LISTEN", "SERVICES__0__SLO__OBJECTIVE", "LOG", "TARGETS__7__X")
    )
    return {f"GOODWATCH_{key}": rng.choice(("1s", "http://a:1", "[", "{a: 1}", "0.5", "\ud800", "*x", "9" * 400, "~"))}


def _broken() -> list[bytes]:
    """Files that are known to be wrong; deep nests are left out, PyYAML takes a second for each."""
    texts = [text if isinstance(text, bytes) else str(text).encode() for text, _ in BROKEN]
    return [text for text in texts if text.count(b"[") < 100]


def _documented() -> list[bytes]:
    """The example, and the YAML blocks of the documentation."""
    found = [(_ROOT / "deploy" / "goodwatch.example.yaml").read_bytes()]
    found.append(re.sub(rb"(?m)^(\s*)# (?=[\w-]+:|- |  )", rb"\1", found[0]))  # its optional parts too
    for page in sorted((_ROOT / "docs").glob("*.md")):
        found += [b.encode() for b in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)]
    return found
