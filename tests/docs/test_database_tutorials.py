"""Rule: tutorials with a pipeline file are true: statements, files, programs and commands are typed as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.support.mysql import mysql_like, needs_mariadb
from tests.support.postgresql import needs_postgres, postgres
from tests.support.typed_commands import typed

from headrace_emulators.kafka.broker import KafkaBroker
from headrace_emulators.mysql.server import MARIADB
from headrace_emulators.postgresql.server import PostgresServer

pytestmark = pytest.mark.system

PAGES = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(sql|yaml|sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Server(Protocol):
    """The server of a page."""

    port: int

    def run(self, sql: str, *, database: str) -> object: ...


def typed_into_psql(text: str, server: PostgresServer, database: str) -> None:
    """As `psql` does: statement by statement, and `\\connect` begins a session in another database."""
    for part in re.split(r"^(?=\\connect )", text, flags=re.MULTILINE):
        command, _, rest = part.partition("\n") if part.startswith("\\connect ") else ("", "", part)
        with server.connect(command.removeprefix("\\connect ") or database) as session:
            for statement in filter(str.strip, rest.split(";\n")):
                session.execute(statement)


def run(kind: str, text: str, server: Server, database: str, folder: Path, names: dict[str, Any]) -> None:
    if kind == "sql" and isinstance(server, PostgresServer):
        typed_into_psql(text, server, database)
    elif kind == "sql":
        server.run(text, database=database)
    elif kind == "yaml":
        (folder / "pipeline.yaml").write_text(
            text.replace("hostname: localhost", f"hostname: 127.0.0.1, port: {server.port}")
        )
    elif kind == "sh":
        typed(text, folder)
    else:
        exec(compile(text, "tutorial", "exec"), names)


def read_through(page: str, kinds: list[str], server: Server, database: str, folder: Path, spark: Any) -> None:
    blocks = BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == kinds
    exported, names = "", {"spark": spark}
    for kind, text in blocks:
        if kind == "sh":
            # One shell, as a reader has it.
            text = exported + text
            exported = "".join(line for line in text.splitlines(keepends=True) if line.startswith("export "))
        run(kind, text, server, database, folder, names)


@needs_postgres
@pytest.mark.slow
def test_the_tutorial_on_postgresql_is_true_as_it_stands(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kinds = ["sql", "sql", "yaml", "sh", "sql", "sh", "python", "sql"]
    with postgres() as server:
        read_through("postgresql.md", kinds, server, "postgres", tmp_path, spark)
        assert server.run("select count(*) from pg_replication_slots") == [(0,)]


@needs_mariadb
@pytest.mark.slow
def test_the_tutorial_on_mysql_is_true_as_it_stands(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # As MariaDB comes, but for its log.
    as_it_comes = {"binlog_format": "MIXED", "binlog_row_metadata": "NO_LOG"}
    with mysql_like(MARIADB, **as_it_comes) as server:
        read_through("mysql.md", ["sql", "sql", "yaml", "sh", "sql", "sh", "python"], server, "mysql", tmp_path, spark)


@pytest.mark.slow
def test_the_tutorial_on_kafka_is_true_as_it_stands(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((PAGES / "kafka_to_delta.md").read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == ["python", "yaml", "sh", "python", "sh", "python"]
    names, said = {"spark": spark}, []
    with KafkaBroker(tmp_path / "broker") as broker:
        for kind, text in blocks:
            text = text.replace("localhost:9092", broker.bootstrap)
            if kind == "yaml":
                (tmp_path / "pipeline.yaml").write_text(text)
            elif kind == "sh":
                said.append(typed(text, tmp_path))
            else:
                exec(compile(text, "kafka_to_delta.md", "exec"), names)
    assert all("; equal" in text for text in said)
    assert "1 dead letter: topic shop.payments, partition 0, offset 102" in said[0]
