"""The blocking side of reading a Prometheus: one session of prometheus-api-client, with limits. For one thread.

prometheus-api-client gives the result of a query and drops what came with it (warnings, whether it is partial); it has
no limit on the size of an answer. So its session is ours: it reads the body within limits, parses it once, and keeps
the whole envelope.
"""

import json
import re
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from collector._pull_options import Answer, PullError, PullOptions, PullRefusedError

_CHUNK_BYTES: Final = 1 << 16
#: how the servers say that one query asked for too much; a shorter range mends it
_TOO_MUCH: Final = re.compile(r"too many samples|too many|maxUnique|maxSamples|exceed|limit|too large|too long", re.I)
_SHOWN: Final = 300
#: retrying is done by the caller, who can wait without holding a thread; read=False tells a timeout from a refusal
_ONCE: Final = Retry(total=0, read=False)


class _Read(requests.Response):
    """A response whose body was read within limits."""

    def __init__(self, of: requests.Response, body: bytes) -> None:
        super().__init__()
        self.status_code, self.headers, self.url = of.status_code, of.headers, of.url
        self.encoding = of.encoding
        self._content = body


class _Session(requests.Session):
    """Reads a body only up to a size and a time, follows no redirect, and keeps the last answer."""

    def __init__(self, options: PullOptions, monotonic_s: Callable[[], float]) -> None:
        super().__init__()
        self._options = options
        self._monotonic_s = monotonic_s
        self.trust_env = False  # a ~/.netrc must not replace the credentials that were configured
        self.last: requests.Response | None = None
        self.envelope: Any = None

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:
        self.last, self.envelope = None, None
        started_s = self._monotonic_s()
        with super().send(request, **{**how, "stream": True, "allow_redirects": False}) as response:
            self.last = _Read(response, self._body(response, started_s))
        if self.last.status_code == requests.codes.ok:
            self.envelope = _envelope(self.last.content, self._options)
            # The caller's own parsing gets what it needs, not megabytes a second time.
            return _Read(self.last, b'{"data": {"result": []}}')
        return self.last

    def _body(self, response: requests.Response, started_s: float) -> bytes:
        limit, place = self._options.body_limit_bytes, self._options.place
        body = bytearray()
        for chunk in response.iter_content(_CHUNK_BYTES):
            body += chunk
            if len(body) > limit:
                raise PullError(
                    "too_large",
                    f"{place} answered with more than {limit} bytes; narrow the selector, or raise body_limit",
                )
            if self._monotonic_s() - started_s > self._options.timeout_s:
                raise PullError("timeout", f"{place} did not finish its answer within {self._options.timeout_s:g} s")
        return bytes(body)


class _Adapter(HTTPAdapter):
    """Expects another name in the certificate than the URL's host."""

    def __init__(self, server_name: str) -> None:
        self._names: dict[str, Any] = {"server_hostname": server_name, "assert_hostname": server_name}
        super().__init__(max_retries=_ONCE)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **how: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **how, **self._names)


class Http:
    """Asks one server, one query at a time. ``query`` blocks: call it from one thread."""

    def __init__(self, options: PullOptions, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._session = session = _Session(options, monotonic_s)
        session.verify = False if options.insecure_skip_verify else options.ca_file or True
        if options.cert_file is not None:
            session.cert = (options.cert_file, options.key_file) if options.key_file else options.cert_file
        headers = dict(options.headers)
        if options.bearer is not None:
            headers["Authorization"] = f"Bearer {options.bearer}"
        url = options.url.rstrip("/")
        basic = None if options.basic is None else tuple(part.encode() for part in options.basic)  # bytes: any letter
        self._connect = PrometheusConnect(url, headers=headers, auth=basic, session=session, retry=_ONCE, timeout=None)
        if options.server_name is not None:
            session.mount(url, _Adapter(options.server_name))

    def query(self, query: str, at_s: float) -> Answer:
        """Raw samples of a range vector selector at an instant. Raises ``PullError`` or ``PullRefusedError``."""
        place = self._options.place
        try:
            self._connect.custom_query(query, params={"time": f"{at_s:.3f}"}, timeout=self._options.timeout_s)
        except PrometheusApiClientException as error:
            raise self._refusal() from error
        except requests.exceptions.SSLError as error:
            raise PullRefusedError(
                "tls", f"{place}: the TLS connection failed: {_why(error)}; see tls.ca_file"
            ) from error
        except requests.exceptions.Timeout as error:
            raise PullError("timeout", f"{place} did not answer within {self._options.timeout_s:g} s") from error
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
            raise PullError("malformed", f"{place} broke off its answer: {_why(error)}") from error
        except requests.exceptions.RequestException as error:
            raise PullError("unreachable", f"{place} cannot be reached: {_why(error)}") from error
        except OSError as error:  # a certificate file that is not there
            raise PullRefusedError("tls", f"{place}: {_why(error)}; check the files under tls") from error
        return _answer(self._session.envelope, self._options)

    def close(self) -> None:
        """Let go of the connections."""
        self._session.close()

    def _refusal(self) -> PullError | PullRefusedError:
        """What a status other than 200 means."""
        response, place = self._session.last, self._options.place
        assert response is not None
        status, said = response.status_code, _said(response)
        if status in (401, 403):
            return PullRefusedError(
                "unauthorized", f"{place} answers {status}: {said}; check authorization, basic_auth, headers"
            )
        if status in (404, 405) or 300 <= status < 400:
            where = f" and points to {response.headers['Location']}" if "Location" in response.headers else ""
            return PullRefusedError(
                "not_prometheus",
                f"{place} answers {status}{where}: the URL is not the root of a Prometheus API; write what comes before "
                "/api/v1, as in http://prometheus:9090, http://mimir/prometheus or http://vmselect:8481/select/0/prometheus",
            )
        if status in {429, 503}:
            return PullError("overloaded", f"{place} answers {status}: {said}", _retry_after_s(response))
        if status in (413, 422) and (status == 413 or _TOO_MUCH.search(said)):
            return PullError("too_large", f"{place} refuses so much at once: {said}; narrow the selector")
        if 400 <= status < 500 and status != 408:
            return PullRefusedError("bad_query", f"{place} refuses the query: {said}; check selector and headers")
        return PullError("timeout" if status in (408, 504) else "server_error", f"{place} answers {status}: {said}")


def _envelope(body: bytes, options: PullOptions) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise PullError("malformed", f"{options.place} answered with something that is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("data"), dict):
        raise PullError("malformed", f"{options.place} answered with JSON that is not that of a Prometheus")
    return found


def _answer(envelope: dict[str, Any], options: PullOptions) -> Answer:
    data, warnings = envelope["data"], envelope.get("warnings")
    kind, result = data.get("resultType"), data.get("result")
    if kind not in ("matrix", "vector") or not isinstance(result, list):
        raise PullError("malformed", f"{options.place} answered with {kind!r} instead of series")
    if kind == "vector":
        result = [{**one, "values": [one.get("value")]} for one in result if isinstance(one, dict)]
    told = tuple(str(w)[:_SHOWN] for w in warnings) if isinstance(warnings, list) else ()
    # VictoriaMetrics says isPartial; Thanos and Mimir say it in a warning.
    return Answer(result, told, partial=bool(envelope.get("isPartial")) or bool(told))


def _said(response: requests.Response) -> str:
    """The server's own words, in one line."""
    text = response.content.decode(errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    error = found.get("error") if isinstance(found, dict) else None
    line = " ".join((error if isinstance(error, str) else text).split())
    return f"{line[:_SHOWN]}…" if len(line) > _SHOWN else line or "without a word"


def _retry_after_s(response: requests.Response) -> float | None:
    """Seconds of ``Retry-After``; None without one, or when it is a date."""
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if re.fullmatch(r"\d{1,6}", text) else None


def _why(error: BaseException) -> str:
    """The innermost cause: "Connection refused" rather than the tower of wrappers, and never a URL with a query in it."""
    seen = 0
    while seen < 10:
        reason = getattr(error, "reason", None)
        inner = reason if isinstance(reason, BaseException) else next(
            (a for a in (*error.args, error.__cause__, error.__context__) if isinstance(a, BaseException)), None
        )  # fmt: skip
        if inner is None:
            break
        error, seen = inner, seen + 1
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rpartition(": ")[2][:_SHOWN] or type(error).__name__
