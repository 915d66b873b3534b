from pathlib import Path

import pytest

from tests.app.config_files import Read, read_here, wrong


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)
    return read_here


def test_an_origin_says_what_the_spans_do_not(read: Read) -> None:
    text = (
        "otlp:\n  origins:\n"
        "    - {match: {service.name: vllm-chat}, service: chat, model: llama, target: 'gpu1:8000', sampling_ratio: 0.1}\n"
    )
    otlp = read(text).otlp
    assert otlp is not None
    only = otlp.origins[0]
    assert (only.match, only.service, only.model, only.target, only.sampling_ratio) == (
        {"service.name": "vllm-chat"}, "chat", "llama", "gpu1:8000", 0.1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("otlp: {http: null, grpc: null}", "neither http nor grpc listens"),
        ("otlp: {http: '0.0.0.0:4318'}", "reachable from other machines"),
        ("otlp: {grpc: '0.0.0.0:4317'}", "reachable from other machines"),
        ("otlp: {origins: [{sampling_ratio: 0}]}", "not above 0 and at most 1"),
        ("otlp: {origins: [{sampling_ratio: 1.5}]}", "not above 0 and at most 1"),
        ("otlp: {trace_url: 'http://tempo/x'}", "with {trace_id} in it"),
        ("otlp: {body_limit: 300MiB}", "smaller than body_limit (300MiB)"),
        ("otlp: {body_limit: 0}", "is not a size"),
    ],
)
def test_what_cannot_work_is_refused(read: Read, text: str, says: str) -> None:
    assert any(says in line for line in wrong(read, text))


def test_one_of_the_two_protocols_is_enough(read: Read) -> None:
    otlp = read("otlp: {http: null}\n").otlp
    assert otlp is not None
    assert (otlp.http, otlp.grpc) == (None, "127.0.0.1:4317")
