"""The words of the pages, each in a sentence or two. They mean the same everywhere in goodwatch."""

from typing import Final

WORDS: Final[dict[str, str]] = {
    "valid request": (
        "Any request that is not the caller's mistake (4xx). 408 and 429 are valid: the service failed to serve."
    ),
    "good request": "Valid, finished, and within every latency target of its SLO at once.",
    "attainment": "Good over valid requests. From metrics alone it is an interval; both ends are shown.",
    "goodput": "Good requests a second.",
    "unaccounted": (
        "Requests that reached the server and left no finished entry: the client hung up, or they timed out. "
        "They are valid, so they lower the attainment; engine histograms do not have them."
    ),
    "TTFT": "Time to first token: from the request's arrival at the engine to its first output token.",
    "TPOT": "Time per output token of one request: last token minus first, over the tokens after the first.",
    "E2E": "The whole request: from its arrival at the engine to its last token.",
    "p99": "99 of 100 requests were at or below this. Shown when there were enough requests for it, else p90 or p50.",
    "interval": "97.2–98.9 % means that the truth lies between; > 10 s means that only the lower end is known.",
    "idle": "Time in which nothing ran. It is paid for, so it is in every cost.",
    "preemption": "A running request thrown out of the batch for lack of KV-cache space; its work is done again.",
}

#: what to do about a discovery that cannot see all it should, by its key in the configuration
MENDS: Final[dict[str, str]] = {
    "dns_sd": "Ask the same server with dig; then mend the record, or names, type, port or resolvers of the entry.",
    "file_sd": "Mend the file, or whatever writes it: a list of {targets, labels}.",
    "kubernetes_sd": "Try kubectl auth can-i list pods as goodwatch's account; then mend its role, or the entry.",
    "prometheus_sd": "Open its url with /api/v1/targets from this machine; then mend url, api, jobs or match.",
}

#: words and colours of the attainment chart
VERDICTS: Final = (("meets", "good"), ("may meet", "warning"), ("misses", "bad"))
