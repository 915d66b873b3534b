"""Asks the running service for commands that need its data: where it is, with which token, what it says."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from goodwatch.app._files import read_secret
from goodwatch.app.config import Settings, load
from goodwatch.app.engines import known_engines
from goodwatch.core.errors import ConfigError, TransientError

#: environment variable with the token of goodwatch's own API
TOKEN_VARIABLE: Final = "GOODWATCH_TOKEN"  # noqa: S105  its name
#: a fit and a simulation of every strategy, or a week of requests, on a busy machine
_TIMEOUT_S: Final = 300.0


def settings_of(config: Path | None) -> Settings | None:
    """The service's configuration, where it is named. Raises ``ConfigError``."""
    return None if config is None else load(config, engines=known_engines(), environ=os.environ)


def url_of(url: str | None, settings: Settings | None) -> str:
    """Where the service is: told, or the address that its configuration listens on.

    Raises ``ConfigError`` when neither is told.
    """
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"--url {url}: write http:// or https:// in front")
        return url.rstrip("/")
    if settings is None:
        raise ConfigError(
            "which service? name its address with --url http://HOST:PORT, or its file with -c goodwatch.yaml"
        )
    return f"http://{settings.listen}"


def token_of(file: Path | None) -> str | None:
    """The token of a file, else of the environment. Raises ``ConfigError``."""
    try:
        return read_secret(file) if file else os.environ.get(TOKEN_VARIABLE)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--token-file {file}: {error}") from error


def get(base: str, path: str, query: Mapping[str, str], token: str | None) -> dict[str, Any]:
    """The answer of a GET. Raises as ``post``."""
    return _asked(urllib.request.Request(f"{base}{path}?{urlencode(query)}"), base, token)  # noqa: S310  see url_of


def post(base: str, path: str, body: Mapping[str, object], token: str | None) -> dict[str, Any]:
    """The answer of a POST.

    Raises
    ------
    ConfigError
        The service refuses the question; says why.
    TransientError
        Nobody answers, or the service cannot answer now.
    """
    request = urllib.request.Request(f"{base}{path}", json.dumps(body).encode(), method="POST")  # noqa: S310  see url_of
    request.add_header("Content-Type", "application/json")
    return _asked(request, base, token)


def _asked(request: urllib.request.Request, base: str, token: str | None) -> dict[str, Any]:
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310  http and https only
            found = json.loads(reply.read())
    except urllib.error.HTTPError as error:
        told = _detail(error.read())
        if error.code >= 500:
            raise TransientError(f"{base}: {told}") from error
        raise ConfigError(f"{base}: {told}") from error
    except OSError as error:
        raise TransientError(
            f"{base}: nobody answers ({error}); start goodwatch serve, or give the address with --url"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{base}: answers, but not as goodwatch does; see the address") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{base}: answers, but not as goodwatch does; see the address")
    return found


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace") or "no reason was given"
