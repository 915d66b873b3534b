"""goodwatch's own log on standard error: an event and its fields, for people or as one JSON object a line."""

import json
import logging
import sys
import time
from typing import Any, Final

_PLAIN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in record.__dict__.items() if k not in _PLAIN}


class TextFormatter(logging.Formatter):
    """``2026-11-30T12:00:00Z WARNING scrape failed target=a reason=timeout``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a trace follows when there is one."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        fields = "".join(f" {k}={_quoted(v)}" for k, v in _fields(record).items())
        line = f"{at} {record.levelname} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, event, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON line."""
        row = {
            "ts": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        row.update(_fields(record))
        if record.exc_info:
            row["trace"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


def set_up(level: str, style: str) -> None:
    """Send the root logger to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # a run that is left out while the last goes on is no news


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if " " in text or "=" in text or '"' in text else text
