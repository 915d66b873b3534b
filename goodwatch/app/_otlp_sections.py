"""The sections of the configuration file for traces: where they arrive, whose they are, where they go on to."""

from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from goodwatch.app._fields import Headers, Listen, PlainUrl, Text, sentence
from goodwatch.core.request import AttributeNames
from goodwatch.core.section import Duration, Section, Size, number, size_text

_NAMES = AttributeNames()


def _portion(value: object) -> float:
    result = number(value)
    if not 0 < result <= 1:
        raise ValueError("is not above 0 and at most 1; write 0.1 when one request in ten is kept")
    return result


Portion = Annotated[
    float,
    BeforeValidator(_portion),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1, "x-type": "number above 0, at most 1"}),
]


class OriginEntry(Section):
    """What is known of spans whose resource has certain attributes, where the spans do not tell it."""

    match: dict[Text, str] = Field(
        default={}, description="Resource attributes that must be equal (service.name: vllm-chat). Empty: every span."
    )
    service: Text | None = Field(default=None, description="Service that the requests belong to.")
    model: Text | None = Field(default=None, description="Model, for engines whose spans do not name it (vLLM V1).")
    target: Text | None = Field(default=None, description="Target that served them, where one process is one target.")
    sampling_ratio: Portion | None = Field(
        default=None, description="Share of requests whose trace is kept, where the spans do not tell it."
    )


class Attributes(Section):
    """Span or resource attributes that say what no convention names; the first that is there counts."""

    tenant: tuple[Text, ...] = Field(default=_NAMES.tenant, description="Who asked.")
    route: tuple[Text, ...] = Field(default=_NAMES.route, description="Which way the request came.")
    adapter: tuple[Text, ...] = Field(default=_NAMES.adapter, description="Which LoRA adapter answered.")
    form: tuple[Text, ...] = Field(
        default=_NAMES.form, description="Form of interaction: chat, code_completion, agent, rag, batch, voice."
    )
    sampling_ratio: tuple[Text, ...] = Field(
        default=_NAMES.sampling_ratio, description="Probability with which the trace was kept."
    )

    @property
    def names(self) -> AttributeNames:
        """The same as a value."""
        return AttributeNames(self.tenant, self.route, self.adapter, self.form, self.sampling_ratio)


class Forward(Section):
    """Where the bodies go on to, untouched."""

    endpoint: PlainUrl = Field(
        description="OTLP/HTTP endpoint of Tempo, Jaeger, Phoenix, Langfuse, …; /v1/traces and so on are added."
    )
    headers: Headers = Field(default={}, description="HTTP headers; values are kept secret.")
    timeout_s: Duration = Field(default=10.0, description="How long one answer may take.")
    queue_limit_bytes: Size = Field(
        default=64 * 1024**2, description="Most that waits for it. What comes beyond is counted and not forwarded."
    )


class Otlp(Section):
    """Where traces, scores and GenAI metrics arrive. Nothing listens without this section."""

    http: Listen | None = Field(default="127.0.0.1:4318", description="Address for OTLP over HTTP; null: none.")
    grpc: Listen | None = Field(
        default="127.0.0.1:4317", validate_default=True, description="Address for OTLP over gRPC; null: none."
    )
    body_limit_bytes: Size = Field(default=64 * 1024**2, description="Largest body, before and after decompression.")
    queue_limit_bytes: Size = Field(
        default=256 * 1024**2,
        validate_default=True,
        description="Most that is in work at once; beyond it senders are asked to try again.",
    )
    origins: tuple[OriginEntry, ...] = Field(default=(), description="Whose spans are whose; the first match counts.")
    attributes: Attributes = Field(default=Attributes(), description="Attributes that no convention names.")
    settle_s: Duration = Field(default=60.0, description="How long after its last span a request is counted.")
    forward: Forward | None = Field(default=None, description="One more place that gets everything.")
    trace_url: Text | None = Field(
        default=None, description="Link to a trace in your own tool, with {trace_id} in it, for the pages."
    )

    @field_validator("queue_limit_bytes")
    @classmethod
    def _holds_a_body(cls, queue_limit_bytes: int, info: ValidationInfo) -> int:
        body = info.data.get("body_limit_bytes", 0)
        if queue_limit_bytes < body:
            raise sentence(
                f"smaller than body_limit ({size_text(body)}): a body of that size would never be taken; raise it"
            )
        return queue_limit_bytes

    @field_validator("grpc")
    @classmethod
    def _somewhere(cls, grpc: str | None, info: ValidationInfo) -> str | None:
        if grpc is None and info.data.get("http", "") is None:
            raise sentence("neither http nor grpc listens; write one of them, or remove the section")
        return grpc

    @field_validator("trace_url")
    @classmethod
    def _names_the_trace(cls, trace_url: str | None) -> str | None:
        if trace_url is not None and (
            "{trace_id}" not in trace_url or not trace_url.startswith(("http://", "https://"))
        ):
            raise ValueError("is not a link to a trace; write http(s)://… with {trace_id} in it")
        return trace_url
