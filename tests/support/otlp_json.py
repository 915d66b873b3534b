"""OTLP requests in JSON, as a sender would write them: no Python SDK can."""

import base64
import json
from typing import Any

from google.protobuf import json_format

_IDS = {"traceId", "spanId", "parentSpanId"}


def otlp_json(request: Any) -> bytes:
    """The request in OTLP's JSON: protobuf's own but for ids in hex and enums as integers."""
    return json.dumps(_hexed(json_format.MessageToDict(request, use_integers_for_enums=True))).encode()


def _hexed(value: Any) -> Any:
    if isinstance(value, list):
        return [_hexed(one) for one in value]
    if isinstance(value, dict):
        return {key: base64.b64decode(one).hex() if key in _IDS else _hexed(one) for key, one in value.items()}
    return value
