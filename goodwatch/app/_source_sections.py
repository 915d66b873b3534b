"""The section of the configuration file for targets that are read from a Prometheus instead of from the engines."""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from collector.pull import matchers
from goodwatch.app._fields import EngineName, Labels, PlainUrl, Text
from goodwatch.app._target_sections import Credentials
from goodwatch.core.duration import duration_text
from goodwatch.core.section import Duration, Positive, Section, Size


def _selector(value: str) -> str:
    matchers(value)
    return value


def _api_root(url: str) -> str:
    path = url.rstrip("/")
    if path.endswith(("/api/v1", "/api/v1/query", "/api/v1/query_range", "/metrics")):
        raise ValueError("is not the root of the API; write what comes before /api/v1, as in http://prometheus:9090")
    if "?" in url:
        raise ValueError("has a '?' part, which the API does not take; write a header instead")
    return path


ApiRoot = Annotated[PlainUrl, AfterValidator(_api_root)]
Selector = Annotated[str, AfterValidator(_selector), WithJsonSchema({"type": "string", "x-type": "label matchers"})]


class _Source(Section):
    url: ApiRoot = Field(
        description="Root of the API of a Prometheus, Thanos, Mimir or VictoriaMetrics: what comes before /api/v1."
    )
    selector: Selector = Field(description='Which targets, as label matchers: {job="vllm"}.')
    service: Text = Field(default="default", description="Service that the targets belong to.")
    group_by: tuple[Text, ...] = Field(
        default=("instance",),
        min_length=1,
        description="Labels whose values make one target, and its name.",
        json_schema_extra={"x-default": "`[instance]`"},
    )
    step_s: Duration = Field(default=15.0, description="How often it is asked.")
    settle_s: Duration = Field(
        default=5.0, description="Samples younger than this wait for the next read; longer for remote write."
    )
    lookback_s: Duration = Field(
        default=300.0,
        validate_default=True,
        description="How far back one read goes at most. A target without samples for longer is no longer watched.",
    )
    timeout_s: Duration = Field(default=10.0, description="How long one answer may take.")
    body_limit_bytes: Size = Field(default=100_000_000, description="Largest answer that is read.")
    rate_limit_per_s: Positive | None = Field(
        default=None, alias="rate_limit_per_s", description="Most queries in a second, live and for back-filling."
    )
    engine: EngineName | None = Field(default=None, description="Engine, where it must not be detected by names.")
    engine_version: Text | None = Field(default=None, description="Engine version, where names do not tell.")
    gpus: Positive | None = Field(default=None, description="GPUs that each target holds. Needed for cost.")
    gpu: Text | None = Field(default=None, description="GPU type, as in the price list.")
    gpu_hour_usd: Positive | None = Field(default=None, description="Price of one GPU for one hour, in USD.")
    labels: Labels = Field(default={}, description="Labels put on everything that comes from the targets.")

    @field_validator("lookback_s")
    @classmethod
    def _holds_a_step(cls, lookback_s: float, info: ValidationInfo) -> float:
        least_s = 2 * float(info.data.get("step_s", 0.0)) + float(info.data.get("settle_s", 0.0))
        if lookback_s < least_s:
            text = duration_text(least_s)
            raise ValueError(f"is shorter than two steps and settle, so samples would be missed; write at least {text}")
        return lookback_s


class PrometheusEntry(Credentials, _Source):
    """Targets whose samples a Prometheus keeps; it is read instead of the engines."""
