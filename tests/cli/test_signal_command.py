"""Rule: `headrace signal` leaves a signal where the pipeline looks for it, or says in one sentence why not, and 2."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.sources.signal_files import present_files, read_file
from headrace_emulators.sqlserver import EmulatedServer

ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL"
TABLES = {"a": "id int not null primary key, n int", "bb": "id int not null primary key, n int", "keyless": "n int"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with EmulatedServer(folder).create_database("shop") as database:
        database.execute(
            "CREATE TABLE dbo.signals (id varchar(42) not null primary key, type varchar(32), data varchar(2048))"
        )
        database.execute(ENABLE.format("signals"))
        for table, columns in TABLES.items():
            database.execute(f"CREATE TABLE dbo.{table} ({columns})")
            database.execute(ENABLE.format(table))
        database.capture()
    return folder


@pytest.fixture
def pipeline(server, tmp_path):
    shutil.copytree(server, tmp_path / "server")

    def write(**source):
        made = {
            "source": {"type": "sqlserver", "driver": "emulator", "hostname": str(tmp_path / "server")}
            | {"database": "shop", **source},
            "sink": {"type": "memory"},
            "pipeline": {"name": "shop", "checkpoint": "state"},
        }
        file = tmp_path / "pipeline.yaml"
        file.write_text(json.dumps(made))
        return str(file)

    return write


def signal(file, *arguments):
    return CliRunner().invoke(app, ["signal", file, *arguments])


def test_a_row_in_the_signal_table(pipeline, tmp_path):
    file = pipeline(signal_data_collection="dbo.signals")
    arguments = ("--tables", r"dbo.a, dbo\.b{1,2}", "--filter", "n > 1", "--id", "mine")
    done = signal(file, "execute-snapshot", *arguments)
    assert (done.exit_code, done.output) == (
        0,
        "Signal 'mine' (execute-snapshot) is in table dbo.signals of database shop.\n",
    )
    with EmulatedServer(tmp_path / "server").database("shop") as database:
        ((id, type, data),) = database.execute("SELECT * FROM dbo.signals").fetchall()
    assert (id, type) == ("mine", "execute-snapshot")
    assert json.loads(data) == {
        "data-collections": ["dbo.a", r"dbo\.b{1,2}"],
        "type": "incremental",
        "additional-conditions": [
            {"data-collection": "dbo.a", "filter": "n > 1"},
            {"data-collection": r"dbo\.b{1,2}", "filter": "n > 1"},
        ],
    }


@pytest.mark.parametrize(("source", "folder"), [({}, "state-signals"), ({"signalPath": "asked"}, "asked")])
def test_a_file_beside_the_checkpoint_or_where_the_pipeline_says(pipeline, tmp_path, source, folder):
    done = signal(pipeline(**source), "stop-snapshot", "--id", "mine")
    assert done.exit_code == 0
    (name,) = present_files(str(tmp_path / folder))
    assert str(tmp_path / folder / name) in done.output
    found = read_file(tmp_path / folder, name)
    assert (found.id, found.type) == ("mine", "stop-snapshot")


MISTAKES = [
    (("execute-snapshot",), {}, "An execute-snapshot needs tables. Name them: --tables dbo.a,dbo.b."),
    (("execute-snapshots",), {}, "There is no signal 'execute-snapshots'. Did you mean 'execute-snapshot'?"),
    (
        ("execute-snapshot", "--tables", "dbo.a", "--type", "block"),
        {},
        "There is no snapshot of type 'block'. Did you mean 'blocking'?",
    ),
    (
        ("pause-snapshot", "--filter", "n > 1"),
        {},
        "A pause-snapshot has no filter, no surrogate key and no type. Only execute-snapshot has them.",
    ),
    (("log",), {}, "A log signal needs a message. Give it: --message 'text'."),
    (
        ("resume-snapshot",),
        {"signal_data_collection": "dbo.none"},
        "The signal table 'dbo.none' is not among the captured tables of database 'shop'. Enable its change data "
        "capture (sys.sp_cdc_enable_table) and add it to 'tables'.",
    ),
    (
        ("resume-snapshot",),
        {"signal_path": None},
        "The pipeline has no place for signals. Set 'signal_data_collection' (a captured table) or 'signal_path' "
        "(a folder) in its source.",
    ),
    (
        ("log", "--message", "hello"),
        {"signal_path": "/proc/none"},
        "Signal folder '/proc/none' can't be written (No such file or directory). Set 'signal_path' to another.",
    ),
]


@pytest.mark.parametrize(("arguments", "source", "sentence"), MISTAKES, ids=[s[:45] for *_, s in MISTAKES])
def test_a_mistake_is_one_sentence_and_2(pipeline, arguments, source, sentence):
    done = signal(pipeline(**source), *arguments)
    assert (done.exit_code, done.output) == (2, sentence + "\n")


@pytest.mark.parametrize("place", [{"signal_data_collection": "dbo.signals"}, {}], ids=["row", "file"])
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("execute-snapshot", "--tables", "dbo.a,dbo.bbb"),
            "No captured table matches 'dbo.bbb'. Did you mean 'dbo.bb'?",
        ),
        (
            ("stop-snapshot", "--tables", r"other\..*"),
            r"No captured table matches 'other\..*'. Known: dbo.a, dbo.bb, dbo.keyless, dbo.signals.",
        ),
        (
            ("execute-snapshot", "--tables", "dbo.keyless"),
            "Table 'dbo.keyless' can't be read beside the stream: it has no key, so a row that is read again can't be "
            "told from another one.",
        ),
        (
            ("execute-snapshot", "--tables", "dbo.a", "--surrogate-key", "nn"),
            "Table 'dbo.a' can't be read beside the stream: it has no captured column 'nn' to cut it by.",
        ),
        (("execute-snapshot", "--tables", "dbo.a", "--filter", "n >"), "The server refuses the filter of table"),
        (
            ("execute-snapshot", "--tables", r"dbo\.[ab]+", "--filter", "nn > 1"),
            "The server refuses the filter of table 'dbo.a'",
        ),
    ],
)  # fmt: skip
def test_what_the_stream_could_not_follow_is_refused_and_not_sent(pipeline, tmp_path, place, arguments, sentence):
    done = signal(pipeline(**place), *arguments)
    assert done.exit_code == 2
    assert done.output.startswith(sentence)
    assert done.output.count("\n") == 1
    assert not (tmp_path / "state-signals").exists()
    with EmulatedServer(tmp_path / "server").database("shop") as database:
        assert database.execute("SELECT * FROM dbo.signals").fetchall() == []


def test_a_file_is_left_for_a_database_that_can_not_be_asked_and_that_is_said(pipeline, tmp_path):
    file = pipeline(hostname="/nowhere")
    done = signal(file, "execute-snapshot", "--tables", "dbo.a")
    assert done.exit_code == 0
    assert done.stderr.startswith("Not checked, because the database can't be reached: ")
    assert len(present_files(str(tmp_path / "state-signals"))) == 1


def test_a_row_that_the_table_refuses_is_said(pipeline):
    file = pipeline(signal_data_collection="dbo.signals")
    assert signal(file, "pause-snapshot", "--id", "mine").exit_code == 0
    done = signal(file, "pause-snapshot", "--id", "mine")
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert "can't be inserted into table 'dbo.signals'" in done.output
    assert done.output.endswith("Give it an id that is not there yet, and columns that are long enough.\n")


def test_a_pipeline_of_topics_takes_no_signals(tmp_path):
    made = {
        "source": {
            "type": "kafka",
            "bootstrap.servers": "k:9092",
            "topics": "a",
            "format": {"type": "debezium_json"},
        },
        "sink": {"type": "delta", "path": "lake"},
        "pipeline": {"name": "mirror", "checkpoint": "state"},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(made))
    done = signal(str(file), "pause-snapshot")
    assert (done.exit_code, done.output) == (
        2,
        "The source of 'mirror' takes no signals. Signal the pipeline that reads the database.\n",
    )
