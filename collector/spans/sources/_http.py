"""Status of an HTTP exchange, under its current and its older key (OpenTelemetry HTTP conventions 1.23)."""

from typing import Final

from collector.spans.table import keys

HTTP_STATUS: Final = keys("http.response.status_code", "http.status_code")
