"""Rule: no two sinks of a pipeline write the same place, the sink of dead letters included; and a sink is known by what
it gets, not by its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.pipeline.model import Model, read_model
from headrace.pipeline.shared_places import identities, may_meet_dead_letters, refuse_shared_places

A, B = TableId("shop", "dbo", "a"), TableId("shop", "dbo", "b")
ONLY_A: dict[str, Any] = {"routes": [{"tables": "dbo.a"}], "unrouted_tables": "leave_out"}
ONLY_B: dict[str, Any] = {"routes": [{"tables": "dbo.b"}], "unrouted_tables": "leave_out"}
FILTERED: dict[str, Any] = {"transforms": [{"tables": "dbo.*", "filter": "id > 1"}]}
AS_A: dict[str, Any] = {"routes": [{"tables": "dbo.b", "to": "dbo.A"}], "unrouted_tables": "leave_out"}
DELTA, FILES, ICE = (
    {"type": "delta", "path": "./lake"},
    {"type": "files", "path": "./out"},
    {"type": "iceberg", "warehouse": "./lake"},
)
JDBC = {"type": "jdbc", "url": "postgresql://localhost/x", "user": "u"}
KAFKA = {"type": "kafka", "bootstrap.servers": "one:9092,two:9092"}
DEBEZIUM: dict[str, Any] = {"format": {"type": "debezium_json", "topic.prefix": "p"}}


def model(
    folder: Path,
    *sinks: dict[str, Any],
    source: dict[str, Any] | None = None,
    letters: dict[str, Any] | None = None,
) -> Model:
    text = {
        "source": source
        or {"type": "sqlserver", "driver": "emulator", "hostname": str(folder / "server"), "database": "shop"},
        "sinks": list(sinks),
        "pipeline": {"name": "p", "checkpoint": "./checkpoint"},
        **({} if letters is None else {"dead_letter": letters}),
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(text))
    return read_model(file)


BY_THE_FILE = [
    (DELTA, {**DELTA, **FILTERED}),
    (DELTA, {"type": "delta", "path": "lake/../lake/"}),
    (DELTA, {"type": "delta", "path": "./link"}),
    (DELTA, {**DELTA, "stored_as_scd_type": 2}),
    (DELTA, ICE),
    ({**FILES, **DEBEZIUM, **ONLY_A}, {**FILES, **DEBEZIUM, **ONLY_B}),
    ({**FILES, **DEBEZIUM}, {"type": "files", "path": "./out/", "format": {"type": "canal_json"}}),
    ({"type": "memory"}, {"type": "memory", **ONLY_B}),
    (JDBC, {**JDBC, "url": "jdbc:postgresql://127.0.0.1:5432/x", "table_name": "public.{table}"}),
    (
        {**KAFKA, **DEBEZIUM},
        {"type": "kafka", "bootstrap.servers": "TWO:9092", "format": {"type": "debezium_json", "topic.prefix": "p"}},
    ),
    (
        {**KAFKA, "format": {"type": "canal_json", "topic": "t"}},
        {**KAFKA, "format": {"type": "maxwell_json", "topic": "t"}},
    ),
]


@pytest.mark.parametrize("sinks", BY_THE_FILE, ids=lambda sinks: " ".join(sink["type"] for sink in sinks))
def test_sinks_that_write_the_same_whatever_the_tables_are_are_refused_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: tuple[dict[str, Any], ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to("lake")
    if any(sink.get("table_name") for sink in sinks):
        sinks = ({**sinks[0], "table_name": "{table}"}, sinks[1])
    with pytest.raises(OptionError, match=r"Sink 1 \(.*\) and sink 2 \(.*\) write the same tables to"):
        model(tmp_path, *sinks)


BY_TABLES = [
    ((DELTA, {**DELTA, **ONLY_B}), [A, B], True),
    ((DELTA, {**DELTA, **ONLY_B}), [A], False),
    (({**DELTA, **ONLY_A}, {**DELTA, **ONLY_B}), [A, B], False),
    (({**DELTA, **ONLY_A}, {**DELTA, **AS_A}), [A, B], True),
    (({**DELTA, **ONLY_A}, {"type": "delta", "path": "./other"}), [A, B], False),
    (({**JDBC, **ONLY_A}, {**JDBC, **ONLY_B}), [A, B], False),
    (({**JDBC, **ONLY_A}, {**JDBC, **FILTERED, **ONLY_A}), [A, B], True),
    (({**KAFKA, **DEBEZIUM, **ONLY_A}, {**KAFKA, **DEBEZIUM, **ONLY_B}), [A, B], False),
    (({**KAFKA, "format": {"type": "canal_json", "topic": "t"}, **ONLY_A},
      {**KAFKA, "format": {"type": "canal_json", "topic": "t"}, **ONLY_B}), [A, B], True),
]  # fmt: skip


@pytest.mark.parametrize(("sinks", "tables", "refused"), BY_TABLES)
def test_sinks_with_routes_are_refused_where_they_write_a_table_to_the_same_place(
    tmp_path: Path, sinks: tuple[dict[str, Any], ...], tables: list[TableId], refused: bool
) -> None:
    found = model(tmp_path, *sinks)
    if not refused:
        refuse_shared_places(found.targets, tables, "sqlserver")
        return
    with pytest.raises(OptionError, match=r"Sink 1 \(.*\) and sink 2 \(.*\) would both write table"):
        refuse_shared_places(found.targets, tables, "sqlserver")


def test_a_sink_keeps_its_identity_when_sinks_change_their_order(tmp_path: Path) -> None:
    sinks = [{**DELTA, **ONLY_A}, {**FILES, **DEBEZIUM}, {**DELTA, **ONLY_B}]
    one, alone, other = identities(model(tmp_path, *sinks).targets)
    assert one and other and one != other and not alone
    assert identities(model(tmp_path, *reversed(sinks)).targets) == [other, alone, one]
    # Whoever shares no place has none, wherever it is moved to.
    assert identities(model(tmp_path, sinks[0], sinks[1]).targets) == ["", ""]


TOPICS = {
    "type": "kafka",
    "bootstrap.servers": "one:9092",
    "topics": ["t"],
    "format": {"type": "debezium_json", "on_error": "dead_letter"},
}
BY_PATTERN = {name: value for name, value in TOPICS.items() if name != "topics"} | {"topics.pattern": "t.*"}
FIXED: dict[str, Any] = {"format": {"type": "canal_json", "topic": "t.dead_letter"}}
LETTERS_BY_THE_FILE: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"type": "memory"}, {"type": "memory"}, True),
    ({"type": "memory"}, {"type": "memory", "name": "dead"}, False),
    ({**FILES, **DEBEZIUM}, {"type": "files", "path": "out/"}, True),
    ({**FILES, **DEBEZIUM}, {"type": "files", "path": "dead"}, False),
    ({**KAFKA, **FIXED}, KAFKA, True),
    ({**KAFKA, **FIXED}, {**KAFKA, "topic": "letters"}, False),
    ({**KAFKA, **FIXED}, {"type": "kafka", "bootstrap.servers": "three:9092"}, False),
    (DELTA, DELTA, False),
]


@pytest.mark.parametrize(("sink", "letters", "refused"), LETTERS_BY_THE_FILE)
def test_dead_letters_in_the_place_of_a_sink_are_refused_with_the_file(
    tmp_path: Path, sink: dict[str, Any], letters: dict[str, Any], refused: bool
) -> None:
    if not refused:
        assert model(tmp_path, sink, source=TOPICS, letters=letters).dead_letters is not None
        return
    with pytest.raises(OptionError, match=r"line \d+: Sink 1 \(.*\) and dead letters both go to .*of their own"):
        model(tmp_path, sink, source=TOPICS, letters=letters)


@pytest.mark.parametrize(
    ("sink", "letters", "table", "refused"),
    [
        (DELTA, {**DELTA, "table": "dbo.a"}, A, True),
        (DELTA, {**DELTA, "table": "dbo.a"}, B, False),
        ({**DELTA, **AS_A}, {**DELTA, "table": "dbo.A"}, B, True),
        (DELTA, {"type": "delta", "path": "./dead", "table": "dbo.a"}, A, False),
        (JDBC, {**JDBC, "table": "public.a"}, TableId("", "public", "a"), True),
        (ICE, {**ICE, "table": "dbo.a"}, A, True),
        ({**KAFKA, **FIXED}, KAFKA, A, True),
        ({**KAFKA, **FIXED}, {**KAFKA, "topic": "letters"}, A, False),
    ],
)
def test_dead_letters_in_the_place_of_a_table_are_refused_before_a_row_is_written(
    tmp_path: Path, sink: dict[str, Any], letters: dict[str, Any], table: TableId, refused: bool
) -> None:
    found = model(tmp_path, sink, source=BY_PATTERN, letters=letters)
    assert found.dead_letters is not None
    places = found.dead_letters.places(["t"])
    if not refused:
        refuse_shared_places(found.targets, [table], "sqlserver", places)
        return
    assert may_meet_dead_letters(found.targets, found.dead_letters)
    with pytest.raises(OptionError, match=rf"would write table {table.path} to .*, where dead letters go\. Give dead"):
        refuse_shared_places(found.targets, [table], "sqlserver", places)
