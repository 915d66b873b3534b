"""Settings to the parts that quality needs, and what happens to the texts of each trace request."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.judge import JudgeEndpoint
from collector.quality.redact import Redactor
from collector.quality.screen import Screened, screened
from collector.quality.texts import TextStore
from goodwatch.app._files import read_secret
from goodwatch.app._quality_sections import JudgeSettings, Quality
from goodwatch.app.judging import JudgeTerms
from goodwatch.core.errors import ConfigError, StoreError
from goodwatch.core.ports import RequestStore

log = logging.getLogger(__name__)


def open_texts(quality: Quality, data_dir: Path) -> TextStore | None:
    """The store of texts in a folder of its own in ``data_dir``; None unless texts are kept. Raises ``StoreError``."""
    if not quality.keep_text:
        return None
    redactor = Redactor((one.name, one.pattern) for one in quality.redact)
    return TextStore(
        data_dir / "texts" / "texts.duckdb",
        redactor,
        keep_s=quality.keep_text_for_s,
        keep_bytes=quality.text_limit_bytes,
    )


def judge_endpoint(judge: JudgeSettings) -> JudgeEndpoint:
    """Where the judge is, secrets opened. Raises ``ConfigError`` when the key's file cannot be read."""
    key = None if judge.key is None else judge.key.get_secret_value()
    if judge.key_file is not None:
        try:
            key = read_secret(judge.key_file)
        except ValueError as error:
            raise ConfigError(f"quality.judge.key_file: {judge.key_file} {error}") from error
    return JudgeEndpoint(
        judge.endpoint, judge.model, key, timeout_s=judge.timeout_s, max_output_tokens=judge.max_output_tokens,
        json_mode=judge.json_mode,
    )  # fmt: skip


def judge_terms(judge: JudgeSettings) -> JudgeTerms:
    """How much may be judged."""
    return JudgeTerms(
        judge.model, judge.batch, judge.calls_per_day, judge.usd_per_day, judge.price, judge.max_output_tokens
    )


class AnswerIntake:
    """What is done with the texts of trace requests: built-in checks, and keeping them where the operator said so."""

    def __init__(self, quality: Quality, scores: RequestStore, texts: TextStore | None) -> None:
        self._quality = quality
        self._scores = scores
        self._texts = texts
        #: texts that could not be kept; their spans and scores were
        self.lost_texts = 0
        self.problem = ""

    def beside(self, request: ExportTraceServiceRequest, received_s: float) -> Callable[[], object] | None:
        """Check the answers of a request, in the thread that decodes; what is returned commits, in the store's thread."""
        if not self._quality.checks and self._texts is None:
            return None
        found = screened(request, received_s)
        if not self._quality.checks:
            found = Screened(found.frame.clear(), found.texts)
        if found.frame.is_empty() and (self._texts is None or not found.texts):
            return None
        return partial(self._commit, found, received_s)

    def _commit(self, found: Screened, received_s: float) -> None:
        if not found.frame.is_empty():
            self._scores.append_scores(found.frame)
        if self._texts is not None and found.texts:
            try:
                self._texts.append(found.texts, received_s, ratio=self._quality.keep_text_ratio)
                self.problem = ""
            except StoreError as error:  # what a request took matters more than what it said
                self.lost_texts += len(found.texts)
                if not self.problem:
                    log.error("texts are not kept", extra={"problem": str(error)})
                self.problem = str(error)
