"""Interaction forms: what kind of waiting a request is, and latency targets to begin with.

A preset is a starting point for an operator who has no targets yet; each says where its values come from. Sources:
GuideLLM's guide "Service Level Objectives" (vllm-project/guidellm, docs/guides/service_level_objectives.md, 2026), whose
ITL targets are taken as TPOT targets (a mean gap cannot be held without them); MLPerf Inference v5.0, Llama 2 70B
interactive (99 % within TTFT 450 ms and TPOT 40 ms); OpenAI's Batch API, which promises 24 hours.
"""

from dataclasses import dataclass
from typing import Final

from goodwatch.core.model import Limits

_GUIDE: Final = "GuideLLM, Service Level Objectives"


@dataclass(frozen=True, slots=True)
class Form:
    """One interaction form: ``source`` says where its limits come from, for the page and the configuration's docs."""

    name: str
    title: str
    limits: Limits
    source: str


FORMS: Final[tuple[Form, ...]] = (
    Form("chat", "chat", Limits(ttft_s=0.2, tpot_s=0.05), f"{_GUIDE}: chat applications"),
    Form("chat-large", "chat, large model", Limits(ttft_s=0.45, tpot_s=0.04), "MLPerf Inference v5.0, Llama 2 70B interactive"),
    Form("code-completion", "code completion", Limits(e2e_s=2.0), f"{_GUIDE}: code completion"),
    Form("code-generation", "code generation", Limits(ttft_s=0.5, tpot_s=0.15), f"{_GUIDE}: code generation"),
    Form("agent", "agent step", Limits(e2e_s=5.0), f"{_GUIDE}: instruction following, agentic AI"),
    Form("rag", "answer from documents", Limits(ttft_s=0.3, tpot_s=0.1, e2e_s=3.0), f"{_GUIDE}: retrieval-augmented generation"),
    Form("batch", "batch", Limits(e2e_s=24 * 3600.0), "OpenAI Batch API: completion within 24 hours"),
    Form(
        "voice",
        "voice",
        Limits(ttft_s=0.3, tpot_s=0.1),
        "convention, no source: a turn is answered within 0.8 s, of which speech recognition and synthesis take 0.5 s;"
        " speech needs about 4 tokens a second, read ahead twofold",
    ),
)  # fmt: skip

_BY_NAME: Final = {form.name: form for form in FORMS}


def form_of(name: str) -> Form:
    """The form of this name. Raises ValueError, a predicate for a configuration error, when there is none.

    Examples
    --------
    >>> form_of("chat").limits.ttft_s
    0.2
    """
    form = _BY_NAME.get(name)
    if form is None:
        raise ValueError(f"is no interaction form; known: {', '.join(sorted(_BY_NAME))}")
    return form
