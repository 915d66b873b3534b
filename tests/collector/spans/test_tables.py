"""Rules that every table of a source of spans keeps; they run over all that are found."""

import doctest

import pytest

import collector.spans.content
import collector.spans.tracestate
from collector.spans.content import is_content
from collector.spans.known import known_tables
from collector.spans.table import DEFAULT_PARSE, Match, Parse, SpanClass, SpanTable
from goodwatch.core.request import PartKind
from goodwatch.signals.request_frames import PARTS

TABLES = list(known_tables().values())
CLASSES = [(table, one) for table in TABLES for one in table.classes]


def all_of(table: SpanTable) -> list[str]:
    """Keys that a table names."""
    match = [key for one in table.classes for key in (*one.match.has, *one.match.lacks)]
    tested = [one.match.one_of[0] for one in table.classes if one.match.one_of]
    fields = [table.fields, *(one.fields for one in table.classes)]
    return [*match, *tested, *(read.key for each in fields for reads in each.values() for read in reads)]


@pytest.mark.parametrize(
    "name", ["vllm", "sglang", "trtllm", "dynamo", "llmd", "litellm", "otel_genai", "openinference"]
)
def test_a_source_is_found_by_its_own_module(name: str) -> None:
    assert known_tables()[name].name == name


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_a_table_fills_columns_of_parts_that_a_span_can_fill(table: SpanTable) -> None:
    of_resource = {"received_s", "origin", "instance", "service", "target", "weight", "weight_told"}
    of_span = {
        "trace_id",
        "span_id",
        "parent_id",
        "name",
        "kind",
        "source",
        "vantage",
        "started_s",
        "ended_s",
        "status",
    }
    columns = {column for fields in (table.fields, *(c.fields for c in table.classes)) for column in fields}
    assert columns <= set(PARTS) - of_resource - of_span


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_no_table_reads_what_people_wrote(table: SpanTable) -> None:
    assert [key for key in all_of(table) if is_content(key)] == []


@pytest.mark.parametrize(("table", "one"), CLASSES, ids=lambda v: v.name if isinstance(v, SpanTable) else "")
def test_a_class_is_kept_or_dropped_and_asks_for_something(table: SpanTable, one: SpanClass) -> None:
    assert (one.kind is None) == bool(one.dropped)
    assert one.match != Match()
    assert not (one.childless and one.kind)
    assert one.duration in ("", *PARTS)
    if one.kind in (PartKind.CLIENT_CALL,):
        assert one.zero_tokens_unknown, "otel-attributes, zero_means_missing_for: app_sdk_tokens"


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_a_unit_is_only_of_a_duration(table: SpanTable) -> None:
    for fields in (table.fields, *(c.fields for c in table.classes)):
        for column, reads in fields.items():
            for read in reads:
                parse = read.parse or DEFAULT_PARSE.get(column, Parse.TEXT)
                assert read.unit_s == 1.0 or parse is Parse.SECONDS
                assert read.unit_s == (1e-3 if read.key.endswith("_ms") else 1.0)
                assert bool(read.path) == (parse is Parse.JSON_COUNT)


# otel-attributes, drop_by_default
DROPPED = [
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "input.value",
    "output.value",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "langfuse.observation.input",
    "langfuse.observation.output",
    "langfuse.trace.input",
    "langfuse.trace.output",
    "llm.headers",
    "gen_ai.headers",
    "code.filepath",
    "llm.invocation_parameters",
    "gen_ai.prompt",
    "gen_ai.prompt.0.content",
    "gen_ai.completion.0.content",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "llm.input_messages.0.message.content",
    "llm.output_messages.1.x",
    "llm.prompts.0",
    "llm.completions.0",
    "input.images",
    "output.images",
    "input.documents.0.document.content",
    "output.documents",
    "retrieval.documents.2.document.content",
    "gen_ai.retrieval.documents",
    "embedding.embeddings.0.embedding.text",
    "llm.openai.messages",
    "mcp.request.argument.x",
    "mcp.response.value",
    "gen_ai.completion.x.finish_reason",
    "gen_ai.completion.0.message.finish_reason",
]


@pytest.mark.parametrize("key", DROPPED)
def test_content_is_known_by_its_key(key: str) -> None:
    assert is_content(key)


@pytest.mark.parametrize(
    "key", ["gen_ai.completion.0.finish_reason", "gen_ai.completion.12.finish_reason", "gen_ai.usage.prompt_tokens"]
)
def test_what_is_no_content_may_be_read(key: str) -> None:
    assert not is_content(key)


@pytest.mark.parametrize("module", [collector.spans.content, collector.spans.tracestate], ids=lambda m: m.__name__)
def test_the_examples_of_the_docstrings_run(module: object) -> None:
    done = doctest.testmod(module)  # type: ignore[arg-type]
    assert (done.failed, done.attempted > 0) == (0, True)
