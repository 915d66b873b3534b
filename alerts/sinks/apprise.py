"""Everything that apprise knows, by its URLs: Slack, PagerDuty, Feishu and Lark, DingTalk, WeCom, mail and many more.

apprise blocks and says only yes or no, so each sink has one thread of its own with a time-out. Its log and that of its
HTTP library hold URLs with tokens in them and go nowhere; of a failure only the HTTP status is kept.
"""

import asyncio
import hashlib
import importlib
import logging
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from alerts.grouping import Message
from alerts.sinks._port import SinkKind, SinkOptions
from alerts.sinks._text import text, title
from goodwatch.core.errors import ConfigError, TransientError

_TYPES: Final = {"page": "failure", "ticket": "warning", "none": "info"}
#: services that close what they opened when they are told the same key: what to add to their URL, and the key's name
_KEYED: Final = {"pagerduty": ("action=map", "dedup")}
_STATUS: Final = re.compile(r"error=([1-5][0-9]{2})\b")
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 410})
#: what they say below these levels holds paths with tokens
_LOG_LEVELS: Final = {"apprise": logging.WARNING, "urllib3": logging.ERROR, "requests_oauthlib": logging.ERROR}


class Apprise:
    """One apprise URL."""

    def __init__(self, options: SinkOptions) -> None:
        with warnings.catch_warnings():  # its modules import what Python deprecates
            warnings.simplefilter("ignore", DeprecationWarning)
            self._apprise: Any = importlib.import_module("apprise")  # 0.2 s that only its users pay
            self._as = self._apprise.AppriseAsset(app_id="goodwatch", app_desc="goodwatch", app_url="")
            self._url = options.url
            self._timeout_s = options.timeout_s
            self._overheard = _overheard()
            if self._of(self._url) is None:
                scheme = options.url.partition("://")[0][:20] if "://" in options.url else ""
                raise ConfigError(
                    f"sink {options.name}: apprise does not understand its url (scheme {scheme!r}); "
                    "the forms are listed at https://appriseit.com/services"
                )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sink-{options.name}")

    async def deliver(self, message: Message) -> None:
        """Send one message."""
        loop = asyncio.get_running_loop()
        sending = loop.run_in_executor(self._thread, self._send, message)
        try:
            said = await asyncio.wait_for(sending, self._timeout_s)
        except TimeoutError as error:
            raise TransientError(f"no answer within {self._timeout_s:g} s") from error
        if said is None:
            return
        if said in _REFUSED:
            raise ConfigError(f"answered {said}; check the token and the path in its url")
        raise TransientError(f"answered {said}" if said else "cannot be reached, or took the message for wrong")

    async def close(self) -> None:
        """Let the thread go; one that still waits for its receiver ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _of(self, url: str) -> Any:
        return self._apprise.Apprise.instantiate(url, asset=self._as, suppress_exceptions=True)

    def _send(self, message: Message) -> int | None:
        """In the thread: None when it went out, else the HTTP status, 0 where there was none."""
        self._overheard.forget()
        service = self._of(_keyed(self._url, message.key))
        kind = "success" if message.resolved else _TYPES[message.level]
        sent = service is not None and service.notify(
            body=text(message), title=title(message), notify_type=kind, body_format="text"
        )
        return None if sent else self._overheard.status()


def _keyed(url: str, key: str) -> str:
    """The URL with the group as key of the incident, for services that have one; a key of the operator's stays."""
    scheme = url.partition("://")[0].lower()
    if scheme not in _KEYED:
        return url
    more, name = _KEYED[scheme]
    if re.search(rf"[?&]({name}|{more.partition('=')[0]})=", url):
        return url
    value = hashlib.sha256(f"goodwatch {key}".encode()).hexdigest()[:32]
    return f"{url}{'&' if '?' in url else '?'}{more}&{name}={value}"


class _Overheard(logging.Filter):
    """Keeps the last HTTP status that apprise told its log, by thread; no record gets past it."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[int, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Look at one record and drop it."""
        found = _STATUS.search(record.getMessage())
        if found is not None:
            self._heard[threading.get_ident()] = int(found[1])
        return False

    def forget(self) -> None:
        """Before a message of this thread."""
        self._heard.pop(threading.get_ident(), None)

    def status(self) -> int:
        """What was heard since; 0 for nothing."""
        return self._heard.pop(threading.get_ident(), 0)


def _overheard() -> _Overheard:
    """The one ear at apprise's log."""
    for name, level in _LOG_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    log = logging.getLogger("apprise")
    ears = [one for one in log.filters if isinstance(one, _Overheard)]
    if not ears:
        ears = [_Overheard()]
        log.addFilter(ears[0])
    return ears[0]


SINK: Final = SinkKind("apprise", Apprise)
