"""Which attributes hold what people wrote and what models answered, and which name a person. Pure.

The first are never read (``collector.spans.texts`` does, when the operator keeps texts), the second only as a digest.
"""

import hashlib
import re
from typing import Final

_EXACT: Final = frozenset(
    (
        "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result", "input.value", "output.value", "traceloop.entity.input", "traceloop.entity.output",
        "langfuse.observation.input", "langfuse.observation.output", "langfuse.trace.input", "langfuse.trace.output",
        "llm.headers", "gen_ai.headers", "code.filepath", "llm.invocation_parameters",
    )
)  # fmt: skip
_PREFIXES: Final = (
    "gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages", "gen_ai.output.messages", "llm.input_messages",
    "llm.output_messages", "llm.prompts", "llm.completions", "input.images", "output.images", "input.documents",
    "output.documents", "retrieval.documents", "gen_ai.retrieval.documents", "embedding.embeddings", "llm.openai.",
    "mcp.request.argument", "mcp.response.value", "db.query.",
)  # fmt: skip
_FINISH: Final = re.compile(r"gen_ai\.completion\.\d+\.finish_reason")

#: keys that name a person
PERSONS: Final = frozenset(("user.id", "llm.user", "gen_ai.user", "litellm.end_user.id"))


def is_content(key: str) -> bool:
    """Whether an attribute of this key may hold a prompt, an answer, a document or a secret.

    Examples
    --------
    >>> is_content("gen_ai.prompt.0.content"), is_content("gen_ai.completion.0.finish_reason")
    (True, False)
    """
    return (key in _EXACT or key.startswith(_PREFIXES)) and _FINISH.fullmatch(key) is None


def digest(text: str) -> str:
    """A person's name as something that only tells whether two are the same.

    Examples
    --------
    >>> digest("alice")
    'sha256:2bd806c97f0e00af'
    """
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()[:16]
