"""Rule: the commands on pages do what the pages say, and print what they show, on emulated and real servers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from tests.support.code_blocks import ROOT, block
from tests.support.mysql import mysql_like, needs_mariadb
from tests.support.postgresql import needs_postgres, postgres
from tests.support.sales import Sales
from tests.support.typed_commands import typed
from typer.testing import CliRunner

import headrace
from headrace.cli.app import app
from headrace.testing.waiting import until
from headrace_emulators.kafka.broker import KafkaBroker
from headrace_emulators.mysql.server import MARIADB

GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture
def sales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sales]:
    monkeypatch.chdir(tmp_path)
    made = Sales(tmp_path)
    # `headrace status` fails where no job has read the log for a while, however long the commands before it take.
    with made.database.capture_job():
        yield made
    made.database.close()


def lines(page: str, begins: str) -> list[str]:
    """The commands of a block."""
    found = [line.removeprefix("$ ").split("  #")[0].strip() for line in block(page, begins).splitlines()]
    return [line for line in found if line]


def type_line(line: str) -> str:
    """Run a command of Headrace in this process; what it printed."""
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert done.exit_code == 0, f"{line}\n{done.output}"
    return done.output


def type_until_it_shows(line: str, port: int, seen: Callable[[Any], bool]) -> str:
    """The same of a command that serves a page until Ctrl-C, which is pressed once the page shows something."""

    def press() -> None:
        try:
            until(lambda: seen(shown_at(port)), "the page shows it", 120)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    return type_line(line)


def shown_at(port: int) -> Any:
    """The figures of a page; empty while nothing answers there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/progress.json", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return {}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def typed_in_order(commands: list[str]) -> dict[str, str]:
    """Runs that nothing else ends are ended by Ctrl-C when their first batch is done."""
    said = {}
    for command in commands:
        line = command
        if line.startswith("headrace run") and "--once" not in line:
            port = free_port()
            line = f"{line.replace(' --ui', '')} --ui --ui-port {port}"
            said[command] = type_until_it_shows(line, port, lambda at: (at.get("now") or {}).get("batches", 0) > 0)
        else:
            said[command] = type_line(f"{line} --yes" if " repair " in line else line)
    return said


def test_the_commands_of_the_readme_lead_from_no_file_to_tables_that_equal_the_source(spark: Any, sales: Sales) -> None:
    init, *commands = lines("README.md", "headrace init")
    assert "Wrote pipeline.yaml." in type_line(init)
    sales.pipeline()
    said = typed_in_order(commands)
    assert said["headrace check pipeline.yaml"].endswith("No problems up to level plan.\n")
    assert "3 tables" in said["headrace plan pipeline.yaml"]
    assert "The sinks have everything that the source had." in said["headrace run pipeline.yaml --once"]
    assert said["headrace verify pipeline.yaml"].count("; equal") == 3
    assert [name for name in said if name.split()[1] in ("status", "repair")]


@pytest.mark.system
@pytest.mark.parametrize(
    ("page", "begins"),
    [
        ("docs/index.md", "headrace check"),
        ("docs/deploy.md", "pip install '.[spark,delta,kafka,postgresql]'"),
        ("docs/watching.md", "headrace run"),
    ],
)
def test_the_commands_of_a_page_run_as_they_stand(spark: Any, sales: Sales, page: str, begins: str) -> None:
    sales.pipeline()
    said = typed_in_order([line for line in lines(page, begins) if not line.startswith("pip ")])
    assert any("Watch it at" in text for text in said.values())
    assert "3 rows" not in said.get("headrace verify pipeline.yaml", "")


@pytest.mark.system
def test_tables_are_compared_as_the_page_on_apply_says(spark: Any, sales: Sales) -> None:
    sales.run(spark)
    (line,) = lines("docs/apply.md", "headrace verify")
    assert type_line(line).count("1 row in the source, 1 in the target; equal") == 3


@pytest.mark.system
def test_several_pipelines_are_on_one_page(spark: Any, sales: Sales) -> None:
    sales.run(spark)
    for name in ("sales", "payments"):
        text = sales.pipeline().read_text(encoding="utf-8").replace("name: shop", f"name: {name}")
        (sales.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    (line,) = lines("docs/watching.md", "headrace ui")
    port = free_port()
    assert "Watch them at" in type_until_it_shows(
        f"{line} --port {port}",
        port,
        lambda at: [one["name"] for one in at.get("pipelines", [])] == ["sales", "payments"],
    )


def test_signals_are_sent_as_the_page_says(sales: Sales) -> None:
    for statement in block("docs/reference/sqlserver-signals.md", "CREATE TABLE").splitlines():
        sales.database.execute(statement)
    sales.database.capture()
    assert sales.database.execute("SELECT COUNT(*) FROM dbo.debezium_signal").fetchone()[0] == 1
    sales.pipeline()
    commands = lines("docs/reference/sqlserver-signals.md", "headrace signal")
    assert len(commands) == 6
    for line in commands:
        type_line(line)
    asked = [json.loads(file.read_text()) for file in sorted((sales.folder / "checkpoint-signals").glob("*.json"))]
    assert [one["type"] for one in asked] == [line.split()[3] for line in commands]


def test_a_connector_becomes_a_pipeline_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    connector = {
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        "database.hostname": "db",
        "database.names": "sales",
        "topic.prefix": "acme",
    }
    Path("connector.json").write_text(json.dumps({"name": "c", "config": connector}), encoding="utf-8")
    served = "".join(f"debezium.source.{name}={value}\n" for name, value in connector.items())
    Path("application.properties").write_text(f"debezium.sink.type=kafka\n{served}", encoding="utf-8")
    for line in lines("docs/convert.md", "headrace convert"):
        type_line(line)
        assert yaml.safe_load(Path("pipeline.yaml").read_text(encoding="utf-8")).keys() >= {"source", "pipeline"}
        Path("pipeline.yaml").unlink()


@pytest.mark.system
def test_messages_are_looked_into_as_the_pages_say(tmp_path: Path) -> None:
    # The first ones are all events.
    canal = [json.loads(text)["value"] for text in (GOLDEN / "canal_json/samples.jsonl").read_text().splitlines()[:6]]
    (tmp_path / "messages.txt").write_text("\n".join(canal), encoding="utf-8")
    first = json.loads((GOLDEN / "dts_avro/samples.jsonl").read_text().partition("\n")[0])["value"]["base64"]
    typed(f"printf %s {first} | base64 -d > one-message", tmp_path)
    # What kcat prints of a topic: there is no kcat where tests run.
    record = {"topic": "orders", "partition": 0, "offset": 5, "tstype": "create", "ts": 12, "key": None, "headers": []}
    (tmp_path / "kcat.jsonl").write_text("".join(json.dumps({**record, "payload": value}) + "\n" for value in canal))
    (tmp_path / "bin/kcat").write_text('#!/bin/sh\n[ "$*" = "-C -t orders -e -J" ] && exec cat kcat.jsonl\n')
    (tmp_path / "bin/kcat").chmod(0o755)
    printed = [typed(line, tmp_path) for line in lines("docs/inspect-messages.md", "headrace decode")]
    assert len(printed) == 3 and all(printed)
    letters = tmp_path / "dead_letters" / "batch=000000000000"
    letters.mkdir(parents=True)
    (letters / "part-0").write_text(json.dumps({"topic": "orders", "key": None, "value": canal[0], "headers": []}))
    (line,) = lines("docs/unreadable-messages.md", "cat dead_letters")
    assert "products" in typed(line, tmp_path)


def test_scripts_make_an_emulated_database_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "tables.sql").write_text(
        "EXEC sys.sp_cdc_enable_db\nGO\nCREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)\n"
        "EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 't', @role_name = NULL\nGO\n"
    )
    (tmp_path / "rows.sql").write_text("INSERT INTO dbo.t VALUES (1)\nGO\n")
    (tmp_path / "signal.sql").write_text("INSERT INTO dbo.t VALUES (2)\nGO\n")
    for line in lines("docs/emulator.md", "python -m headrace_emulators.sqlserver"):
        typed(line, tmp_path)
    assert (tmp_path / "lab/testDB.sqlite").exists()


@pytest.mark.slow
@pytest.mark.system
def test_kernels_are_compiled_beforehand_as_the_page_says(tmp_path: Path) -> None:
    for begins in ("pip install headrace", "HEADRACE_KERNELS=$PWD"):
        for line in lines("docs/clusters.md", begins):
            if not line.startswith(("pip ", "spark-submit ")):
                # The same folder for both ways, as compiling takes long.
                typed(line.replace("/opt/headrace", "$PWD/kernels"), tmp_path)
    assert any(file.is_file() for file in (tmp_path / "kernels").rglob("*"))
    assert (tmp_path / "kernels.tar.gz").stat().st_size > 1_000_000


# What commands print.


def shape(line: str) -> str:
    """A line without what differs from server to server: places, times, numbers, paths, and a plural."""
    line = re.sub(r"\S*/headrace ", "headrace ", line)
    line = re.sub(r"[0-9a-f]{8}(:[0-9a-f]{4,8})+", "#", line.strip())
    line = re.sub(r"\(checkpoint [^)]*\)|/[\w/.:-]+", "/", line)
    line = re.sub(r"\d[\d,.:-]*( d| h| min| s)?( \d+ (h|min))?", "#", line)
    line = line.replace("batches", "batch")
    return re.sub(r"(broker|chunk|table|row|column|problem)s\b", r"\1", line)


def shown(page: str, command: str) -> list[str]:
    """What a page shows below a command."""
    text = block(page, command if command.startswith("$") else f"$ {command}")
    after = text[text.index(command) + len(command) :].partition("\n")[2]
    return [shape(line) for line in after.splitlines() if line and not line.startswith("$ ")]


def printed(text: str) -> list[str]:
    return [shape(line) for line in text.splitlines() if line]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "broker") as running:
        yield running


def into_kafka_and_delta(sales: Sales, bootstrap: str, name: str = "sales", **source: Any) -> Path:
    sections = {
        "source": {"type": "sqlserver", **sales.source, "user": "cdc", "password": "x", **source},
        "format": {"type": "debezium_json", "topic.prefix": "sales"},
        "sinks": [{"type": "kafka", "bootstrap.servers": bootstrap}, {"type": "delta", "path": "lake"}],
        "pipeline": {"name": name, "checkpoint": "checkpoint", "trigger": "200ms"},
    }
    file = sales.folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return file


@pytest.mark.system
def test_init_check_and_plan_print_what_their_page_shows(
    spark: Any, sales: Sales, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PASSWORD", "x")
    page = "docs/check.md"
    (init,) = [line for line in lines(page, "$ export") if line.startswith("headrace init")]
    typed_init = init.replace("hostname=db", f"driver=emulator -o hostname={sales.folder / 'server'}")
    assert typed_init != init
    assert printed(type_line(typed_init)) == shown(page, "$ export HEADRACE_PASSWORD=...")

    into_kafka_and_delta(sales, broker.bootstrap, tables="dbo.orders,dbo.items")
    sales.database.execute("DENY SELECT ON sys.dm_server_services TO cdc")
    sales.database.execute("DENY SELECT ON dbo.items TO cdc")
    done = CliRunner().invoke(app, ["check", "pipeline.yaml"])
    assert (done.exit_code, printed(done.output)) == (2, shown(page, "headrace check pipeline.yaml"))
    sales.database.execute("GRANT SELECT ON OBJECT::[dbo].[items] TO [cdc]")

    into_kafka_and_delta(sales, broker.bootstrap, tables="dbo.orders")
    type_line("headrace run pipeline.yaml --once")
    sales.add_note_to_orders()
    into_kafka_and_delta(sales, broker.bootstrap, tables="dbo.orders,dbo.items")
    assert printed(type_line("headrace plan pipeline.yaml")) == shown(page, "headrace plan pipeline.yaml")


@pytest.mark.system
def test_status_prints_of_a_run_what_its_page_shows(spark: Any, sales: Sales, broker: KafkaBroker) -> None:
    # Now, so that the run is as far as on the page: one table is streamed, the other in the middle of its snapshot.
    into_kafka_and_delta(sales, broker.bootstrap, "shop", tables="dbo.orders")
    type_line("headrace run pipeline.yaml --once")
    for key in range(200):
        sales.database.execute("INSERT INTO dbo.items VALUES (?, 2, N'tulip')", (key,))
    sales.database.execute("UPDATE dbo.orders SET total = 1")
    sales.database.capture()
    slowly = {"snapshot_chunk_rows": 2, "snapshot_chunks_per_batch": 1, "tables": "dbo.orders,dbo.items"}
    running = headrace.load_pipeline(into_kafka_and_delta(sales, broker.bootstrap, "shop", **slowly)).start(spark)
    running.watch.follow()
    wanted = shown("docs/completeness.md", "headrace status pipeline.yaml")
    said: list[str] = []
    try:

        def told() -> bool:
            running.wait(0)
            done = CliRunner().invoke(app, ["status", "pipeline.yaml"])
            said[:] = printed(done.output)
            return words(said) == words(wanted)

        until(told, "the run says of itself what the page shows", 60)
    finally:
        running.stop()
    assert [line for line in wanted if line.startswith(STABLE) and line not in said] == []


def words(printed: list[str]) -> list[str]:
    """What each line is about."""
    return [line.split()[0] for line in printed]


STABLE = ("run ", "position ", "retention ", "table ")
"""The lines of a status whose words are those of any run; others say how the source is at that moment."""


@pytest.mark.system
def test_a_feed_is_rewound_and_its_dead_letters_are_replayed_as_the_page_says(
    spark: Any, tmp_path: Path, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at = 1_700_000_000_000
    event = {"database": "shop", "table": "orders", "type": "INSERT", "isDdl": False, "old": None, "es": at, "ts": at}
    event |= {"pkNames": ["id"], "mysqlType": {"id": "int"}, "sqlType": {"id": 4}}
    values = [json.dumps({**event, "id": n, "data": [{"id": str(n)}]}).encode() for n in range(1_300)]
    values[1_250] = b"no event"
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("orders", value)
    producer.flush()
    sections = {
        "source": {"type": "kafka", "bootstrap.servers": broker.bootstrap, "topics": ["orders"],
                   "format": {"type": "canal_json", "on_error": "dead_letter"}},
        "sinks": [{"type": "delta", "path": "lake"}],
        "dead_letter": {"type": "files", "path": "letters"},
        "pipeline": {"name": "mirror", "checkpoint": "checkpoint"},
    }  # fmt: skip
    Path("mirror.yaml").write_text(yaml.safe_dump(sections), encoding="utf-8")
    type_line("headrace run mirror.yaml --once")
    for line in lines("docs/repairs.md", "headrace repair rewind mirror.yaml"):
        type_line(f"{line} --yes")
        type_line("headrace run mirror.yaml --once")
        assert spark.read.format("delta").load(str(tmp_path / "lake/shop/orders")).count() == 1_299
    said = [type_line(line) for line in lines("docs/repairs.md", "headrace dead-letters list")]
    assert "no event" not in said[0] and "orders" in said[0]


@needs_postgres
def test_the_server_is_set_up_as_the_reference_of_postgresql_says() -> None:
    with postgres() as server:
        # This server has a user of the page's name.
        for statement in block("docs/reference/postgresql.md", "ALTER SYSTEM").replace("cdc", "reader").splitlines():
            server.run(statement, database="postgres")
        found = server.run("select rolreplication from pg_roles where rolname = 'reader'", database="postgres")
        assert found == [(True,)]


@needs_mariadb
def test_the_server_is_set_up_as_the_reference_of_mysql_says() -> None:
    with mysql_like(MARIADB) as server:
        server.run("CREATE DATABASE shop", database="mysql")
        server.run(block("docs/reference/mysql.md", "SET GLOBAL").replace("cdc", "reader"), database="mysql")
