"""Small records of what happens seldom: alerts, silences, recommendations, experiments, reports."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """What was known of one thing at one time; ``body`` holds JSON values only.

    ``kind`` and ``id`` name the thing; a later record of the same two is its newer version, and all versions are kept.
    """

    kind: str
    id: str
    at_s: float
    body: Mapping[str, object]
