"""The section of the configuration file for quality: what passes, what is kept of texts, who judges."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from collector.quality.redact import usable
from goodwatch.app._fields import AnyPath, HeaderSecret, PlainUrl, Text, sentence, sibling
from goodwatch.core.quality import PASS_FROM, EvaluatorRule, Price, QualityRules, plain_word
from goodwatch.core.section import Count, Duration, Positive, Section, Size, number


def _ratio(value: object) -> float:
    result = number(value)
    if not 0 <= result <= 1:
        raise ValueError("is not between 0 and 1; scores are")
    return result


def _portion(value: object) -> float:
    result = number(value)
    if not 0 < result <= 1:
        raise ValueError("is not above 0 and at most 1; write 0.1 to keep the texts of one trace in ten")
    return result


def _price(value: object) -> float:
    result = number(value)
    if result < 0:
        raise ValueError("is below 0; write what a million tokens cost, or 0 for a judge of your own")
    return result


Ratio = Annotated[
    float,
    BeforeValidator(_ratio),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1, "x-type": "number from 0 to 1"}),
]
Portion = Annotated[
    float,
    BeforeValidator(_portion),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": 1, "x-type": "number above 0, at most 1"}),
]
PriceUsd = Annotated[
    float, BeforeValidator(_price), WithJsonSchema({"type": "number", "minimum": 0, "x-type": "number, 0 or more"})
]


class Evaluator(Section):
    """What makes the scores of one evaluator pass."""

    name: Text = Field(description="Name of the evaluator, as its scores have it. Unique.")
    pass_from: Ratio | None = Field(
        default=None, description="Score from which on a request passes; with better: lower, up to which."
    )
    better: Literal["higher", "lower"] = Field(default="higher", description="Which scores are good.")
    pass_labels: tuple[Text, ...] = Field(
        default=(), description="Labels that pass, such as yes. Case does not matter."
    )
    fail_labels: tuple[Text, ...] = Field(default=(), description="Labels that fail.")
    screen: bool = Field(
        default=False, description="Its pass proves nothing: requests with no other score count as not scored."
    )

    @field_validator("fail_labels")
    @classmethod
    def _one_meaning(cls, labels: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        passing = {plain_word(label) for label in info.data.get("pass_labels", ())}
        if any(plain_word(label) in passing for label in labels):
            raise ValueError("has a label that pass_labels has as well; keep it in one of them")
        return labels

    @property
    def rule(self) -> EvaluatorRule:
        """The same as a value."""
        labels = {plain_word(x): True for x in self.pass_labels} | {plain_word(x): False for x in self.fail_labels}
        return EvaluatorRule(self.pass_from, self.better == "lower", labels, self.screen)


class RedactRule(Section):
    """Something of your own to take out of texts before they are kept."""

    name: Text = Field(description="Stands in the text instead of what was found: [name].")
    pattern: Text = Field(description="Regular expression (Python's). A group named secret: only that goes.")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        usable(pattern)
        return pattern


class JudgeSettings(Section):
    """A model that grades kept answers: faithfulness to retrieved documents, and factuality."""

    endpoint: PlainUrl = Field(description="OpenAI-compatible endpoint, up to and with /v1.")
    model: Text = Field(description="Model to ask.")
    key_file: AnyPath | None = Field(default=None, description="File that holds the key. Instead of key.")
    key: HeaderSecret | None = Field(default=None, description="Key of the endpoint; none is sent without it.")
    every_s: Duration = Field(default=300.0, description="How often a batch is judged.")
    batch: Count = Field(default=20, description="Answers a batch.")
    calls_per_day: Count = Field(default=1000, description="Most calls in a day (UTC), repeated ones included.")
    usd_per_day: Positive | None = Field(
        default=None, description="Most that a day (UTC) may cost; needs both prices. It is never gone over."
    )
    usd_per_million_input_tokens: PriceUsd | None = Field(default=None, description="Price of what is asked.")
    usd_per_million_output_tokens: PriceUsd | None = Field(
        default=None, validate_default=True, description="Price of what is answered."
    )
    timeout_s: Duration = Field(default=60.0, description="How long one answer may take.")
    max_output_tokens: Count = Field(default=300, description="Longest answer; more for a model that thinks first.")
    json_mode: bool = Field(default=True, description="Ask the endpoint for JSON (response_format); some know it not.")

    @field_validator("key")
    @classmethod
    def _one_key(cls, key: HeaderSecret | None, info: ValidationInfo) -> HeaderSecret | None:
        if key is not None and info.data.get("key_file") is not None:
            raise sibling("key_file", "written beside key; keep one of them")
        return key

    @field_validator("usd_per_million_output_tokens")
    @classmethod
    def _prices(cls, output: float | None, info: ValidationInfo) -> float | None:
        asked = info.data.get("usd_per_million_input_tokens")
        if (asked is None) != (output is None):
            raise sibling("", "one price is missing; write usd_per_million_input_tokens and …_output_tokens")
        if output is None and info.data.get("usd_per_day") is not None:
            raise sibling(
                "usd_per_day", "cannot be held without prices; write usd_per_million_input_tokens and …_output_tokens"
            )
        return output

    @property
    def price(self) -> Price | None:
        """The two prices; None where they are not told."""
        if self.usd_per_million_input_tokens is None or self.usd_per_million_output_tokens is None:
            return None
        return Price(self.usd_per_million_input_tokens, self.usd_per_million_output_tokens)


class Quality(Section):
    """Quality of answers: scores, built-in checks, a judge."""

    pass_from: Ratio = Field(
        default=PASS_FROM, description="Score from which on a request passes, unless said otherwise."
    )
    evaluators: tuple[Evaluator, ...] = Field(default=(), description="What passes, by evaluator.")
    checks: bool = Field(
        default=True,
        description="Look for empty, cut, looping, garbled answers and broken JSON where spans carry texts.",
    )
    keep_text: bool = Field(
        default=False, description="Keep prompts, answers and documents that spans carry, redacted. A judge needs them."
    )
    keep_text_ratio: Portion = Field(default=1.0, description="Share of the traces whose texts are kept.")
    keep_text_for_s: Duration = Field(default=7 * 86400.0, description="How long.")
    text_limit_bytes: Size = Field(default=1024**3, description="Most that texts may take; the oldest go first.")
    redact: tuple[RedactRule, ...] = Field(
        default=(), description="Redaction rules of your own, before the built-in ones."
    )
    judge: JudgeSettings | None = Field(default=None, description="Who grades kept answers; nobody without it.")

    @field_validator("evaluators")
    @classmethod
    def _names_differ(cls, evaluators: tuple[Evaluator, ...]) -> tuple[Evaluator, ...]:
        if len({one.name for one in evaluators}) < len(evaluators):
            raise sentence("an evaluator is there twice; keep one entry of it")
        return evaluators

    @field_validator("judge")
    @classmethod
    def _has_texts(cls, judge: JudgeSettings | None, info: ValidationInfo) -> JudgeSettings | None:
        if judge is not None and info.data.get("keep_text") is False:
            raise sibling("keep_text", "is off, and the judge grades kept texts; write keep_text: true")
        return judge

    @property
    def rules(self) -> QualityRules:
        """What passes."""
        return QualityRules({one.name: one.rule for one in self.evaluators}, self.pass_from)
