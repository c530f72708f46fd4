"""Rule: `headrace check` says what would stop a run and what to do about it, without a run; `headrace plan` what it
would do. Neither writes anything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.status_shop import Shop
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import CaptureError, ConnectError
from headrace.formats.given import given_schema
from headrace.observe.checkpoint import LAST_RUN
from headrace.options import Former
from headrace.permissions import MissingPermission, Permissions
from headrace.pipeline import load_pipeline
from headrace.pipeline.check import Level, Verdict, check_file
from headrace.sinks.files import FilesSettings, FilesSink
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sources.change_tables import lsn
from headrace.testing.waiting import PATIENCE


class Checked(Shop):
    """The shop of `headrace status`, captured by a login that can be refused things, into messages and tables."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options |= {"user": "cdc", "password": "hunter2", "snapshot_chunk_rows": "2"}

    @property
    def head(self) -> str:
        """The newest LSN that is captured."""
        newest = self.database.max_lsn()
        assert newest is not None
        return lsn.to_text(newest)

    def write(self, **changes: Any) -> Path:
        """The pipeline's file with sections changed, null for left out."""
        sections: dict[str, Any] = {
            "source": {"type": "sqlserver", **self.options},
            "format": {"type": "debezium_json", "topic.prefix": "sales"},
            "sinks": [{"type": "files", "path": "messages"}, {"type": "delta", "path": "lake"}],
            "transforms": None,
            "pipeline": {"name": "shop", "checkpoint": "state"},
        }
        for name, change in changes.items():
            sections[name] = {**sections[name], **change} if isinstance(change, dict) else change
        file = self.folder / "pipeline.yaml"
        file.write_text(json.dumps({n: s for n, s in sections.items() if s is not None}, indent=1))
        return file

    def ask(self, command: str, *arguments: str, **changes: Any) -> tuple[int, str]:
        """Exit code and what was printed; nothing may be left behind, and no secret told."""
        file = self.write(**changes)
        before = sorted(path.name for path in self.folder.iterdir())
        done = CliRunner().invoke(app, [command, str(file), *arguments])
        assert sorted(path.name for path in self.folder.iterdir()) == before
        assert "hunter2" not in done.output
        return done.exit_code, done.output


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Checked]:
    made = Checked(tmp_path)
    yield made
    made.database.close()


def test_all_four_levels_of_a_pipeline_that_can_run(shop: Checked) -> None:
    code, text = shop.ask("check")
    place = shop.folder / "lake/dbo/t"
    assert code == 0, text
    assert text.splitlines() == [
        "ok    static     Pipeline 'shop' from sqlserver to files, delta.",
        "ok    connect    source: Database 'shop' takes the login.",
        "ok    connect    sink 1 (files): Can be used.",
        "ok    connect    sink 2 (delta): Can be used.",
        "ok    privileges source: The login has every permission in database 'shop'.",
        f"ok    privileges sink 1 (files): The folder {shop.folder}/messages can be written.",
        f"ok    privileges sink 2 (delta): The folder {shop.folder}/lake can be written.",
        "ok    plan       source: 1 table, 1 with a snapshot, about 5 rows.",
        "ok    plan       dbo.t: key id, 1 column; reads about 5 rows in 3 chunks, then changes after "
        f"{shop.head}; to sink 1 (files): sales.shop.dbo.t; sink 2 (delta): {place}.",
        "No problems up to level plan.",
    ]


def test_every_mistake_of_the_file_is_told_at_once_with_its_line(shop: Checked) -> None:
    code, text = shop.ask(
        "check",
        "--level",
        "static",
        source={"snapshot_chunk_row": "2"},
        format={"topic.prefix": None},
        sinks=[
            {"type": "files", "paht": "m"},
            {"type": "delta", "path": "lake"},
            {"type": "kafka", "bootstrap.servers": "k:1"},
        ],
        pipeline={"trigger": "soon"},
    )
    assert code == 2
    lines = text.splitlines()
    assert [line for line in lines if "Unknown option 'snapshot_chunk_row'" in line and "line " in line]
    assert [line for line in lines if "Unknown option 'paht' for sink 'files'. Did you mean 'path'?" in line]
    assert [line for line in lines if "Option 'topic_prefix' of format 'debezium_json' is missing." in line]
    assert [line for line in lines if "A trigger can't be 'soon'. Write 500ms" in line]
    assert lines[-1] == "4 problems at level static."


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source": {"driver": "mssql-pyton"}}, "Unknown driver 'mssql-pyton'. Did you mean 'mssql-python'?"),
        ({"sinks": [{"type": "detla"}]}, "Unknown sink 'detla'. Did you mean 'delta'?"),
        ({"sinks": None}, "Key 'sinks' is missing."),
        ({"format": {"topic.prefix": "x", "shape": "9"}}, "Option 'shape' can't be '9'."),
        ({"format": {"type": "canal_json", "topic.prefix": None, "topic": "${tabel}"}}, "can't hold '${tabel}'"),
    ],
)
def test_a_mistake_of_the_file(shop: Checked, changes: dict[str, Any], told: str) -> None:
    code, text = shop.ask("check", "--level", "static", **changes)
    assert (code, told in text) == (2, True), text


def test_what_a_later_release_does_not_take_is_noted_and_the_file_passes(
    shop: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = [replace(option, former=(Former("folder", "99.4"),)) for option in FilesSettings.declared]
    monkeypatch.setattr(FilesSettings, "declared", tuple(declared))
    code, text = shop.ask("check", "--level", "static", sinks=[{"type": "files", "folder": "m"}])
    assert code == 0
    assert [line for line in text.splitlines() if "is now 'path'" in line] == [
        "note  static     Option 'folder' of sink 'files' is now 'path'. Rename it: from Headrace 99.4 on the old name "
        "is an error."
    ]


def test_nobody_is_asked_about_the_file_alone(shop: Checked) -> None:
    assert shop.ask("check", "--level", "static", source={"hostname": "/nowhere"})[0] == 0
    code, text = shop.ask("check", "--level", "connect", source={"hostname": "/nowhere"})
    assert (code, "wrong connect    source: Server '/nowhere' can't be reached" in text) == (2, True)


def test_what_can_not_be_reached_is_told_for_source_and_sinks(shop: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.sources.sqlserver.source import SqlServerSource

    def refuse(source: SqlServerSource) -> None:
        raise ConnectError("Server 'db' refused the login of user 'cdc' (password hunter2).", remedy="Check it.")

    monkeypatch.setattr(SqlServerSource, "connect", refuse)
    sinks = [{"type": "kafka", "bootstrap.servers": "127.0.0.1:1"}, {"type": "delta", "path": "lake"}]
    code, text = shop.ask("check", sinks=sinks)
    assert code == 2
    assert "wrong connect    source: Server 'db' refused the login of user 'cdc'" in text
    assert "wrong connect    sink 1 (kafka): No Kafka broker answers at 127.0.0.1:1." in text
    assert text.endswith("2 problems at level connect. Later levels were not checked.\n")


def test_a_checkpoint_whose_last_run_wrote_something_else_is_told(shop: Checked) -> None:
    from headrace.pipeline import checkpoint
    from headrace.pipeline.model import read_model

    (shop.folder / "state").mkdir()
    kept = shop.folder / "state" / LAST_RUN
    kept.write_text(checkpoint.to_text(read_model(shop.write())))
    assert "The last run" not in shop.ask("check")[1]
    for format, form in (
        ({"topic.prefix": "other"}, "debezium_json with topics like other.database.schema.table"),
        ({"type": "canal_json", "topic.prefix": None}, "canal_json with topics like database.schema.table"),
    ):
        code, text = shop.ask("check", format=format)
        assert code == 0
        assert (
            "note  connect    checkpoint: The last run wrote debezium_json with topics like "
            f"sales.database.schema.table to sink 1 (files), the next one would write {form}. What was written"
        ) in text
    kept.write_text("{")
    assert shop.ask("check")[0] == 0


def test_a_permission_that_is_missing_comes_with_its_grant(shop: Checked) -> None:
    shop.database.execute("DENY SELECT ON dbo.t TO cdc")
    code, text = shop.ask("check")
    assert code == 2
    assert (
        "wrong privileges source: The login lacks the permission SELECT on dbo.t (its snapshot and its schema). "
        "Run: GRANT SELECT ON OBJECT::[dbo].[t] TO [cdc]." in text
    )
    shop.database.execute("GRANT SELECT ON OBJECT::[dbo].[t] TO [cdc]")
    assert shop.ask("check")[0] == 0


def test_the_permissions_at_the_sinks_are_checked_for_what_would_be_written_there(
    shop: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def permissions(sink: Any, tables: Any, topics: Any) -> Permissions:
        asked.append((sink.name, [table.path for table in tables], topics))
        note = MissingPermission("The login does not own crm.t.", "Run: ALTER TABLE crm.t.", required=False)
        return Permissions(
            "Fine.", (note, *([MissingPermission("The login lacks X.", "Run: GRANT X.")] if topics else []))
        )

    monkeypatch.setattr(FilesSink, "permissions", permissions)
    monkeypatch.setattr(DeltaSink, "permissions", permissions)
    sinks = [
        {"type": "files", "path": "messages", "routes": [{"tables": "dbo.*", "to": "crm.{table}"}]},
        {"type": "delta", "path": "lake", "routes": [{"tables": "optional:dbo.u"}], "unrouted_tables": "leave_out"},
    ]
    code, text = shop.ask("check", sinks=sinks)
    assert asked == [("files", ["crm.t"], ["sales.shop.crm.t"]), ("delta", [], [])]
    assert code == 2
    assert "note  privileges sink 1 (files): The login does not own crm.t. Run: ALTER TABLE crm.t.\n" in text
    assert "wrong privileges sink 1 (files): The login lacks X. Run: GRANT X.\n" in text
    assert text.endswith("1 problem at level privileges. Later levels were not checked.\n")


def test_a_permission_that_only_hides_something_is_a_note(shop: Checked) -> None:
    shop.database.execute("DENY SELECT ON sys.dm_server_services TO cdc")
    code, text = shop.ask("check", "--level", "privileges")
    assert code == 0
    assert (
        "note  privileges source: The login lacks the permission VIEW SERVER STATE (whether SQL Server Agent runs)."
        in text
    )
    assert "GRANT VIEW SERVER STATE TO [cdc]." in text


def test_every_command_gives_the_same_diagnosis_of_a_database_that_is_not_set_up(shop: Checked) -> None:
    shop.server.create_database("plain", enable_cdc=False).close()
    said = "Change data capture is not enabled for database 'plain'."
    todo = "EXEC sys.sp_cdc_enable_db"
    found = [
        shop.ask(command, source={"database": "plain"}, sinks=[{"type": "files", "path": "messages"}])
        for command in ("check", "plan", "status")
    ]
    assert [code for code, _ in found] == [2, 2, 1]
    assert [(said in text, todo in text, "GRANT" in text) for _, text in found] == [(True, True, False)] * 3
    options = {**shop.options, "database": "plain"}
    given = [part for name, value in options.items() if name != "password" for part in ("-o", f"{name}={value}")]
    made = CliRunner().invoke(app, ["init", "-", *given])
    assert said in made.output
    # What a run asks before it begins.
    with pytest.raises(CaptureError, match="not enabled"):
        load_pipeline(shop.write(source={"database": "plain"})).check()


def test_a_table_that_is_not_captured_shows_in_the_plan(shop: Checked) -> None:
    shop.database.execute("CREATE TABLE dbo.plain (id int NOT NULL PRIMARY KEY)")
    code, text = shop.ask("check", source={"tables": ["dbo.plain"]})
    assert code == 2
    assert "wrong plan       source: Table 'dbo.plain' of database 'shop' has no change data capture." in text
    assert "@source_name = N'plain'" in text


def test_where_routes_send_a_table_and_what_a_transform_can_not_do(shop: Checked) -> None:
    sinks = [
        {"type": "files", "path": "messages", "routes": [{"tables": "dbo.*", "to": "crm.{table}"}]},
        {"type": "delta", "path": "lake", "routes": [{"tables": "optional:dbo.u"}], "unrouted_tables": "leave_out"},
    ]
    code, text = shop.ask("check", sinks=sinks, transforms=[{"filter": "id > 1"}])
    assert code == 0, text
    assert "to sink 1 (files): sales.shop.crm.t; sink 2 (delta): left out by its routes.\n" in text
    assert text.splitlines()[-2] == (
        "note  plan       Of expressions in transforms only names of columns were looked at; the rest needs Spark. "
        "headrace plan looks at all of it."
    )
    code, text = shop.ask("check", sinks=sinks, transforms=[{"exclude_columns": ["id"]}])
    assert code == 2
    assert (
        "wrong plan       dbo.t in sink 1 (files): Transform 1 leaves out column 'id' of table 'dbo.t', which is in "
        "the table's key. Take it out of 'exclude_columns'."
    ) in text


def test_a_plan_says_what_is_wrong_with_an_expression(shop: Checked, spark: Any) -> None:
    sinks = [{"type": "delta", "path": "lake", "routes": [{"to": "{table}"}], "transforms": [{"filter": "nr > 1"}]}]
    loaded = load_pipeline(shop.write(format=None, sinks=sinks))
    assert loaded.looks_with_spark
    [(table, target)] = loaded.plan(spark=spark).stops
    assert (table, target.stop, target.remedy) == (
        "dbo.t",
        "The filter of transform 1 of sink 1 (delta) for table 'dbo.t' names `nr`, which is not there.",
        "Its columns: `id`.",
    )
    sinks[0]["transforms"] = [{"computed_columns": {"twice": "id * 2"}}]
    [table_plan] = load_pipeline(shop.write(format=None, sinks=sinks)).plan(spark=spark).tables
    [target] = table_plan.targets
    assert (target.place, target.exists) == (str(shop.folder / "lake/shop/t"), False)


def test_json_says_the_same(shop: Checked) -> None:
    code, text = shop.ask("check", "--json", "--level", "connect")
    found = json.loads(text)
    assert (code, found["passed"], found["level"], found["reached"]) == (0, True, "connect", "connect")
    assert found["findings"][0] == {
        "level": "static",
        "verdict": "ok",
        "subject": "file",
        "sentence": "Pipeline 'shop' from sqlserver to files, delta.",
        "remedy": None,
    }
    assert shop.ask("check", "--level", "everything")[0] == 2


def test_check_starts_no_spark(shop: Checked) -> None:
    program = (
        "import sys\nfrom headrace.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    sys.exit(end.code or 'pyspark' in sys.modules)\n"
    )
    file = shop.write(sinks=[{"type": "files", "path": "messages"}])
    done = subprocess.run([sys.executable, "-c", program, "check", str(file)], capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


# The plan.


def planned(shop: Checked, **changes: Any) -> Any:
    code, text = shop.ask("plan", "--json", sinks=[{"type": "files", "path": "messages"}], **changes)
    assert code == 0, text
    return json.loads(text)


def test_a_plan_from_nothing_through_the_snapshot_to_the_stream(shop: Checked) -> None:
    (table,) = planned(shop)["tables"]
    begin = shop.head
    assert (table["snapshot"], table["rows"], table["chunks"], table["after"]) == ("begins", 5, 3, begin)
    assert table["targets"][0]["place"] == "sales.shop.dbo.t"
    shop.batch()
    (table,) = planned(shop)["tables"]
    assert (table["snapshot"], table["chunks_done"], table["after"]) == ("goes on", 1, begin)
    shop.level()
    found = planned(shop)
    (table,) = found["tables"]
    assert (table["snapshot"], table["after"], found["batch"]) == ("none", shop.offset.commit, 4)


def test_a_plan_says_where_messages_are_made(shop: Checked) -> None:
    files: dict[str, object] = {"type": "files", "path": "messages", "format": {"type": "canal_json"}}
    code, text = shop.ask("plan", format=None, sinks=[files])
    assert (code, "  encode  where the source is read\n" in text) == (0, True), text
    code, text = shop.ask("plan", format=None, sinks=[{**files, "routes": [{"tables": "dbo.t", "to": "u"}]}])
    assert "  encode  behind the source, because sink 1 (files) has routes or transforms\n" in text


def test_a_plan_without_a_snapshot_and_without_a_stream(shop: Checked) -> None:
    (table,) = planned(shop, source={"snapshot_mode": "no_data"})["tables"]
    assert (table["snapshot"], table["after"]) == ("none", shop.head)
    (table,) = planned(shop, source={"snapshot_mode": "initial_only"})["tables"]
    assert (table["snapshot"], table["after"]) == ("begins", None)


def test_a_plan_with_a_new_table_and_one_that_is_left_out(shop: Checked) -> None:
    shop.level()
    shop.database.execute("CREATE TABLE dbo.u (a int)")
    shop.database.execute("EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='u', @role_name=NULL")
    shop.database.execute("INSERT INTO dbo.u VALUES (1), (2)")
    shop.database.capture()
    found = planned(shop, source={"tables": ["optional:dbo.u"]})
    (table,) = found["tables"]
    assert (table["table"], table["key"], table["snapshot"], table["chunks"]) == ("dbo.u", [], "begins", 1)
    assert found["gone"] == ["dbo.t"]


def test_a_plan_that_can_not_be_carried_out_is_the_error_of_the_run(shop: Checked) -> None:
    shop.level()
    for key in (10, 11):
        shop.database.execute("INSERT INTO dbo.t VALUES (?)", (key,))
        shop.database.capture()
    shop.database.cleanup()
    code, text = shop.ask("plan", sinks=[{"type": "files", "path": "messages"}])
    assert (code, text.count("\n")) == (2, 1)
    assert text.startswith("Changes of table 'dbo.t'"), text


def test_a_plan_of_topics(shop: Checked) -> None:
    source = {"type": "kafka", "bootstrap.servers": "127.0.0.1:1", "topics": "a,b", "format": {"type": "canal_json"}}
    file = shop.folder / "feed.yaml"
    sections = {"source": source, "sink": {"type": "memory"}, "pipeline": {"name": "feed", "checkpoint": "state"}}
    file.write_text(json.dumps(sections))
    done = CliRunner().invoke(app, ["plan", str(file)])
    assert done.exit_code == 0
    assert "Topics a, b; from the beginning." in done.output
    checked = CliRunner().invoke(app, ["check", str(file), "--level", "connect"])
    assert (checked.exit_code, "No Kafka broker answers at 127.0.0.1:1" in checked.output) == (2, True)


def test_tables_prints_the_structures_that_a_reader_of_the_messages_needs(shop: Checked) -> None:
    code, text = shop.ask("tables")
    assert code == 0, text
    (table,) = given_schema(yaml.safe_load(text)["schema"]).tables
    assert (table.id.path, table.key) == ("dbo.t", ("id",))
    assert [(one.name, str(one.logical), one.nullable) for one in table.columns] == [("id", "int32", False)]


def test_tables_of_a_pipeline_without_messages_is_refused(shop: Checked) -> None:
    code, text = shop.ask("tables", format=None, sinks=[{"type": "delta", "path": "lake"}])
    assert (code, "writes no messages of a database's tables" in " ".join(text.split())) == (2, True)


@pytest.mark.parametrize(
    ("format", "verdict"),
    [
        ({"type": "maxwell_json"}, Verdict.WRONG),
        ({"type": "maxwell_json", "schema": [{"tableId": ["", "", "t"], "columns": []}]}, None),
        ({"type": "debezium_json"}, Verdict.NOTE),
        ({"type": "canal_json"}, None),
    ],
)
def test_a_feed_without_the_types_of_columns_is_found_before_its_first_message(
    tmp_path: Path, format: dict[str, Any], verdict: Verdict | None
) -> None:
    source = {"type": "kafka", "bootstrap.servers": "127.0.0.1:1", "topics": ["t"], "format": format}
    sections = {"source": source, "pipeline": {"name": "feed", "checkpoint": str(tmp_path / "state")}}
    file = tmp_path / "feed.yaml"
    file.write_text(json.dumps({**sections, "sink": {"type": "delta", "path": str(tmp_path / "lake")}}))
    found = [one for one in check_file(file, Level.STATIC).findings if "types of columns" in one.sentence]
    assert [one.verdict for one in found] == ([] if verdict is None else [verdict])
    assert all("`headrace tables`" in one.remedy for one in found)
