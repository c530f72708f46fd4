"""Rule: the programs on pages run as they stand, on emulated servers where a page names a server of the reader's."""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from tests.support.code_blocks import block
from tests.support.sales import Sales

import headrace
from headrace.spark.jars import DELTA
from headrace.testing.waiting import until
from headrace_emulators.kafka.broker import KafkaBroker


@pytest.fixture
def sales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sales]:
    monkeypatch.chdir(tmp_path)
    made = Sales(tmp_path)
    yield made
    made.database.close()


def run(page: str, begins: str, given: dict[str, Any], *replaced: tuple[str, str]) -> dict[str, Any]:
    """Run a program, with what it names of the reader's replaced; the names that it made."""
    text = block(page, begins)
    for old, new in replaced:
        assert old in text, f"{page} has no {old!r}"
        text = text.replace(old, new)
    # Classes look for what is declared in their module.
    module = ModuleType("page")
    vars(module).update(given)
    sys.modules["page"] = module
    exec(compile(text, page, "exec"), vars(module))
    return vars(module)


def test_the_stream_of_the_readme_sends_its_changes_to_kafka(spark: Any, sales: Sales, tmp_path: Path) -> None:
    before = {query.id for query in spark.streams.active}
    with KafkaBroker(tmp_path / "broker") as broker:
        run(
            "README.md",
            "import headrace",
            {"spark": spark, "secret": "x"},
            ('"hostname": "db"', f'"driver": "emulator", "hostname": {str(tmp_path / "server")!r}'),
            ("k:9092", broker.bootstrap),
            # Where Spark's own folder is, else.
            ('"checkpoint"', repr(str(tmp_path / "checkpoint"))),
        )
        (query,) = (one for one in spark.streams.active if one.id not in before)
        at = {"bootstrap.servers": broker.bootstrap}
        topics = {"sales.sales.dbo.orders", "sales.sales.dbo.customers"}
        try:
            until(lambda: set(AdminClient(at).list_topics().topics) >= topics, "both tables have a topic")
            # Both at once: Spark's own reader fails where a topic appears while it looks.
            consumer = Consumer({**at, "group.id": "reader", "auto.offset.reset": "earliest"})
            consumer.subscribe(sorted(topics))
            seen: set[str] = set()

            def both() -> bool:
                seen.update(str(found.topic()) for found in consumer.consume(10, 1) if not found.error())
                return seen == topics

            until(both, "rows of both tables are in Kafka")
            consumer.close()
        finally:
            query.stop()


@pytest.mark.system
def test_a_table_with_history_is_kept_as_the_page_on_apply_says(spark: Any, tmp_path: Path) -> None:
    at = dt.datetime(2026, 1, 1)
    rows = [(1, "Vienna", "I", at), (2, "Rome", "I", at), (1, "Graz", "U", at.replace(month=2))]
    changes = spark.createDataFrame(rows, "id int, city string, op string, changed_at timestamp")
    given = {"headrace": headrace, "changes": changes}
    run("docs/apply.md", "headrace.apply_changes(", given, ("lake.sales.customers", str(tmp_path / "customers")))
    found = spark.read.format("delta").load(str(tmp_path / "customers"))
    assert sorted(row["city"] for row in found.collect()) == ["Graz", "Rome", "Vienna"]
    assert found.where("__END_AT is null").count() == 2


@pytest.mark.system
def test_what_is_complete_is_asked_as_the_page_says_and_a_job_waits_for_it(spark: Any, sales: Sales) -> None:
    checkpoint = str(sales.run(spark, "dbo.orders,dbo.items"))
    place = ("/data/checkpoints/shop", checkpoint)
    midnight = dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    found = run("docs/completeness.md", "import headrace", {"midnight": midnight}, place)["found"]
    assert set(found.tables) == {"dbo.orders", "dbo.items"}
    assert found.covers(midnight) and found.overall is not None
    run("docs/completeness.md", "import sys", {}, place)


def test_columns_are_typed_by_the_schema_that_the_server_tells(spark: Any, sales: Sales) -> None:
    changes = spark.readStream.format("sqlserver_cdc").options(**sales.source).load()
    where = f'"sqlserver", driver="emulator", hostname={str(sales.folder / "server")!r}'
    given = {"changes": changes, "password": "x"}
    typed = run("docs/concepts/change-row.md", "import headrace", given, ('"sqlserver", hostname="db"', where))["typed"]
    assert dict(typed.schema["after"].dataType.jsonValue()["fields"][1])["type"] == "decimal(9,2)"


@pytest.mark.system
def test_a_program_of_ones_own_runs_a_pipeline_and_says_what_a_session_needs(
    spark: Any, sales: Sales, capsys: pytest.CaptureFixture[str]
) -> None:
    sales.pipeline()
    # It would run for ever.
    run("docs/deploy.md", "import headrace", {}, ("running.wait()", "running.finish_at_head(); running.wait()"))
    assert spark.read.format("delta").load(str(sales.folder / "lake/dbo/orders")).count() == 1
    run("docs/deploy.md", "pipeline =", {"headrace": headrace})
    assert [line.split("=")[0] for line in capsys.readouterr().out.splitlines()[-3:]] == [
        f"--packages {DELTA}",
        "--conf spark.sql.extensions",
        "--conf spark.sql.catalog.spark_catalog",
    ]


def test_emulated_databases_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    db2 = run("docs/emulator.md", "from headrace_emulators.db2", {})["database"]
    assert db2.execute("SELECT COUNT(*) FROM ASNCDC.CDC_SHOP_ORDERS").fetchone()[0] == 1
    db2.close()
    oracle = run("docs/emulator.md", "from headrace_emulators.oracle", {})["database"]
    with oracle.connect("SHOP") as session:
        assert [tuple(row) for row in session.execute("SELECT ID FROM T")] == [(2,)]


def test_a_setting_is_declared_as_the_decision_shows() -> None:
    from headrace import Settings, Sink, option

    made = run(
        "docs/decisions/0027-settings.md", "class FilesSettings", {"Settings": Settings, "Sink": Sink, "option": option}
    )
    assert [one.name for one in made["FilesSettings"].declared] == ["path"]


def test_examples_of_redo_statements_give_what_the_page_says() -> None:
    import doctest

    found = doctest.testfile(str(Path(__file__).parents[2] / "docs/reference/oracle-redo.md"), module_relative=False)
    assert found.attempted >= 8 and not found.failed


def test_signatures_of_the_reference_are_python(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/reference/python.md").read_text(encoding="utf-8")
    signatures = re.findall(r"^```python\n(def .*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(signatures) == 9
    for signature in signatures:
        names: dict[str, Any] = {}
        exec(compile("from __future__ import annotations\n" + signature, "python.md", "exec"), names)
        (name,) = [name for name, made in names.items() if callable(made)]
        assert callable(getattr(headrace, name))
