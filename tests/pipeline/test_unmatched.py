"""Rule: a name or pattern of a transform, a route or a sink that stands for no captured table or column stops the run
before the first row, and is told by `check` and `plan`; a column that goes away behind one stops it, too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.captured_shop import SqlServerDatabase, closing

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.observe.progress import ProgressBoard
from headrace.options import Names
from headrace.pipeline import load_pipeline
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, MessageInput
from headrace.pipeline.check import Level, Verdict, check_file
from headrace.pipeline.kafka_source import KafkaTopicsSettings
from headrace.pipeline.model import Model, read_model
from headrace.pipeline.shaping.expressions import unknown_column
from headrace.pipeline.unmatched import FeedPatterns, unmatched_in
from headrace.sinks.memory import MemorySink
from headrace.testing.change_history import Batch

SINK = {"type": "delta", "path": "lake"}
COLUMNS = "id int not null primary key, email varchar(40), note varchar(20)"


def model(folder: Path, **sections: object) -> Model:
    return read_model(written(folder, **sections))


def written(folder: Path, **sections: object) -> Path:
    given = {
        "source": {"type": "sqlserver", "hostname": "there", "database": "shop", "driver": "emulator"},
        "sink": SINK,
        "pipeline": {"name": "shop", "checkpoint": "state"},
    }
    file = folder / "p.yaml"
    file.write_text(json.dumps(given | sections))
    return file


def table(name: str, *columns: str) -> TableSchema:
    made = [Column(column, n, LogicalType("string"), nullable=n > 1) for n, column in enumerate(columns, 1)]
    return TableSchema(TableId("shop", "dbo", name), tuple(made), columns[:1])


TABLES = [table("orders", "id", "email", "note"), table("items", "id", "price")]
MASK = "column.mask.with.3.chars"


@pytest.mark.parametrize(
    ("sections", "sentences"),
    [
        ({"transforms": [{"tables": "dbo.*", MASK: ["email"]}, {"exclude_columns": ["note"]}]}, []),
        (
            {"transforms": [{"tables": "dbo.*", MASK: ["emial"]}]},
            [f"No captured column matches 'emial' of option '{MASK}' of transform 1."],
        ),
        (
            {"transforms": [{"column.truncate.to.2.chars": ["email", "x"], "exclude_columns": ["y"]}]},
            [
                "No captured column matches 'x' of option 'column.truncate.to.2.chars' of transform 1.",
                "No captured column matches 'y' of option 'exclude_columns' of transform 1.",
            ],
        ),
        (
            {"transforms": [{"tables": "dbo.*", "include_columns": ["id", "ptice"]}]},
            ["No captured column matches 'ptice' of option 'include_columns' of transform 1."],
        ),
        (
            {"transforms": [{"column.mask.hash.v2.SHA-256.with.salt.aB": ["nope"]}]},
            [
                "No captured column matches 'nope' of option 'column.mask.hash.v2.SHA-256.with.salt."
                "*********(redacted)' of transform 1."
            ],
        ),
        (
            {"transforms": [{"tables": ["dbo.orders", "dbo.ordres"], "filter": "id > 1"}]},
            ["No table matches 'dbo.ordres' of option 'tables' of transform 1."],
        ),
        ({"transforms": [{"computed_columns": {"total": "1"}}, {"include_columns": ["id", "total"]}]}, []),
        ({"transforms": [{"tables": "optional:dbo.later", MASK: ["x"]}, {MASK: ["optional:x"]}]}, []),
        (
            {"sink": SINK | {"transforms": [{MASK: ["x"]}], "routes": [{"tables": "dbo.non*", "to": "{table}"}]}},
            [
                f"No captured column matches 'x' of option '{MASK}' of transform 1 of sink 1 (delta).",
                "No table matches 'dbo.non*' of option 'tables' of route 1 of sink 1 (delta).",
            ],
        ),
        (
            {"sink": SINK | {"except_column_list": ["orders.note", "email", "nope", "optional:later"]}},
            ["No captured column matches 'nope' of option 'except_column_list' of sink 1 (delta)."],
        ),
        (
            {
                "sink": {
                    "type": "iceberg",
                    "warehouse": "lake",
                    "partition_by": ["email", "bucket(4, orders.id)", "truncate(2,nope)", "day(x)"],
                }
            },
            [
                "No captured column matches 'truncate(2,nope)' of option 'partition_by' of sink 1 (iceberg).",
                "No captured column matches 'day(x)' of option 'partition_by' of sink 1 (iceberg).",
            ],
        ),
        (
            {"sink": SINK | {"stored_as_scd_type": "2", "track_history_column_list": ["email", "nope"]}},
            ["No captured column matches 'nope' of option 'track_history_column_list' of sink 1 (delta)."],
        ),
    ],
)
def test_what_stands_for_nothing(tmp_path: Path, sections: dict[str, object], sentences: list[str]) -> None:
    found = unmatched_in(model(tmp_path, **sections).targets, TABLES)
    assert [one.sentence for one in found] == sentences
    assert all(one.stops for one in found)


def test_what_is_for_a_table_that_is_gone_is_left_alone(tmp_path: Path) -> None:
    read = model(tmp_path, transforms=[{"tables": "dbo.gone", MASK: ["x"]}, {"tables": "dbo.*", MASK: ["x"]}])
    assert unmatched_in(read.targets, TABLES, [TableId("shop", "dbo", "gone")]) == []


def test_types_that_stand_for_nothing_are_only_told(tmp_path: Path) -> None:
    format = {"type": "debezium_json", "topic.prefix": "s", "column.propagate.source.type": ".*email,.*nope"}
    read = model(tmp_path, format=format, sink={"type": "files", "path": "f"})
    [found] = unmatched_in(read.targets, TABLES)
    assert (found.text, found.names, found.stops) == (".*nope", Names("columns", "informs"), False)


# In a feed, whose tables are known when their first message comes.


def feed(folder: Path, *transforms: dict[str, object], fresh: bool = True, unmatched: str = "fail") -> FeedPatterns:
    return FeedPatterns(model(folder, transforms=list(transforms)).targets, of_topics(unmatched), fresh=fresh)


def of_topics(unmatched: str) -> KafkaTopicsSettings:
    given = {"bootstrap.servers": "k:9092", "topics": ["t"], "unmatched_patterns": unmatched}
    return KafkaTopicsSettings.parse(given, owner="source 'kafka'")


def test_a_misspelt_column_stops_the_first_batch_of_a_feed_that_says_tables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patterns = feed(tmp_path, {"tables": "dbo.*", MASK: ["emial"]})
    patterns.hold([])
    for _ in range(2):
        with pytest.raises(OptionError, match=f"No captured column matches 'emial' of option '{MASK}' of transform 1"):
            patterns.hold(TABLES)
    for more in ({"fresh": False}, {"unmatched": "warn"}):
        caplog.clear()
        patterns = feed(tmp_path, {"tables": "dbo.*", MASK: ["emial"]}, **more)  # type: ignore[arg-type]
        patterns.hold(TABLES)
        patterns.hold(TABLES)
        assert caplog.text.count("matches 'emial'") == 1


def test_a_column_of_a_table_that_may_still_come_stops_no_feed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = {"tables": ["dbo.*", "dbo.later"], MASK: ["phone", "optional:emial"]}
    for fresh in (True, False):
        patterns = feed(tmp_path, later, fresh=fresh)
        patterns.hold(TABLES[:1])
        assert not patterns.due
    # Said once, by the new pipeline.
    assert [record.getMessage() for record in caplog.records] == [
        "No table matches 'dbo.later' of option 'tables' of transform 1.",
        f"No captured column matches 'phone' of option '{MASK}' of transform 1.",
    ]


def test_a_feed_is_stopped_before_its_first_row(tmp_path: Path, spark: Any) -> None:
    [memory] = model(tmp_path, sink={"type": "memory", "name": "feed"}, transforms=[{MASK: ["emial"]}]).targets
    rows = Batch(TABLES[0]).add("c", TABLES[0], "1", {"id": "1", "email": "a@b"}).rows(spark)
    MemorySink.forget("feed")
    patterns = FeedPatterns([memory], of_topics("fail"), fresh=True)
    writer = BatchWriter(
        "feed", MessageInput(decode=lambda rows: rows, patterns=patterns), Delivery([memory], ProgressBoard())
    )
    writer.begin("checkpoint")
    with pytest.raises(OptionError, match="Did you mean 'email'"):
        writer(rows, 0)
    assert MemorySink.batches("feed") == {}


# At a new structure.


def test_a_column_that_a_transform_names_and_that_goes_away_stops_the_run(tmp_path: Path) -> None:
    [target] = model(tmp_path, transforms=[{"tables": "dbo.*", MASK: ["email"]}]).targets
    renamed = replace(TABLES[0], columns=table("orders", "id", "mail", "note").columns)
    target.shaping.remember(TABLES)
    target.shaping.expect(TABLES)
    with pytest.raises(OptionError) as error:
        target.shaping.expect([renamed, TABLES[1]])
    assert str(error.value) == (
        f"Table 'dbo.orders' has no column 'email' any more, which option '{MASK}' of transform 1 names. Name the "
        "column as it is called now, and put 'optional:' before the name that is there."
    )
    [other] = model(tmp_path, transforms=[{"tables": "dbo.*", MASK: ["mail", "optional:email"]}]).targets
    other.shaping.remember(TABLES)
    other.shaping.expect([renamed, TABLES[1]])


# Whoever looks.


@pytest.mark.parametrize("unmatched", ["fail", "warn"])
def test_check_plan_and_a_run_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture, unmatched: str) -> None:
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        database.create("t", COLUMNS, [(1, "a", "b")])
        source = {"type": "sqlserver", **database.options, "unmatched_patterns": unmatched}
        file = written(
            tmp_path, source=source, sink={"type": "memory"}, transforms=[{"tables": "dbo.*", MASK: ["emial"]}]
        )
        sentence = f"No captured column matches 'emial' of option '{MASK}' of transform 1."
        check = check_file(file, Level.PLAN)
        assert (sentence in str(check.findings), check.passed) == (True, unmatched == "warn")
        pipeline = load_pipeline(file)
        if unmatched == "fail":
            for look in (pipeline.check, pipeline.plan):
                with pytest.raises(OptionError, match="Did you mean 'email'"):
                    look()
            return
        assert pipeline.plan().unmatched == (sentence,)
        pipeline.check()
        assert sentence in caplog.text


@pytest.mark.parametrize(
    ("transforms", "sentence"),
    [
        (
            [{"filter": "stauts = 1"}],
            "The filter of transform 1 names column 'stauts', which table 'dbo.t' does not have.",
        ),
        (
            [{"exclude_columns": ["note"]}, {"computed_columns": {"x": "upper(note)"}}],
            "Column 'x' of transform 2 names column 'note', which table 'dbo.t' does not have.",
        ),
        ([{"computed_columns": {"x": "id + 1"}}, {"filter": "X > 1 and exists(array(id), y -> y > x)"}], None),
    ],
)
def test_check_finds_a_column_that_an_expression_names_and_the_table_lacks(
    tmp_path: Path, transforms: list[dict[str, object]], sentence: str | None
) -> None:
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        database.create("t", COLUMNS, [(1, "a", "b")])
        source = {"type": "sqlserver", **database.options}
        check = check_file(written(tmp_path, source=source, sink={"type": "memory"}, transforms=transforms), Level.PLAN)
    wrong = [finding.sentence for finding in check.findings if finding.verdict is Verdict.WRONG]
    assert wrong == ([] if sentence is None else [sentence])


@pytest.mark.parametrize(
    "text",
    [
        "STATUS <> 'x' and `My Col` is null",
        "timestampadd(HOUR, 1, ts) > current_timestamp",
        "extract(year from ts) = 1 or date'2020-01-01' < ts + interval 1 day",
        "transform(arr, (x, i) -> x + i)[0] = id div 2",
        "named_struct('a', id).a = try_cast(get_json_object(status, '$.a') as int)",
        "this can't be read (",
    ],
)
def test_what_spark_knows_is_no_unknown_column(text: str) -> None:
    assert unknown_column(text, ["id", "status", "ts", "My Col", "arr"]) is None
