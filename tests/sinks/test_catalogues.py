"""Rule: what a sink of tables promises holds in each kind of catalogue that runs on this machine; and the page's
pipelines for them run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from tests.sinks.delta_by_name import METASTORE
from tests.support.catalog_servers import CatalogServers, serving
from tests.support.iceberg_target import IcebergTarget
from tests.support.status_shop import Shop

from headrace.errors import SchemaError, SinkError
from headrace.pipeline import load_pipeline
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.spark.jars import ICEBERG
from headrace.testing.change_history import Batch, table
from headrace.testing.table_sinks import TableSinkContract
from headrace.testing.table_target import A, T
from headrace.testing.waiting import PATIENCE

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
if not ICEBERG:
    pytest.skip("Iceberg has no release for this Spark", allow_module_level=True)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogServers]:
    with serving(tmp_path_factory.mktemp("catalogues")) as running:
        yield running


class ServedTarget(IcebergTarget):
    """A sink on a namespace of its own in a catalogue that is a server."""

    def __init__(self, spark: Any, **given: str) -> None:
        self.spark = spark
        self.given = {**given, "catalog": f"c{uuid4().hex[:8]}", "namespace": f"n{uuid4().hex[:8]}_{{schema}}"}


@pytest.mark.system
class TestIcebergRest(TableSinkContract):
    fault_point = "sink.iceberg"

    @pytest.fixture
    def target(self, spark: Any, servers: CatalogServers) -> ServedTarget:
        return ServedTarget(spark, catalog_type="rest", uri=servers.rest)


# It differs from the one above in how a commit is made, which the tests below see too.
@pytest.mark.soak
class TestIcebergInHive(TableSinkContract):
    fault_point = "sink.iceberg"

    @pytest.fixture
    def target(self, spark: Any, servers: CatalogServers, tmp_path: Path) -> ServedTarget:
        return ServedTarget(spark, catalog_type="hive", uri=servers.lenient_metastore, warehouse=str(tmp_path))


@pytest.mark.system
def test_a_metastore_that_compares_columns_by_position_is_named_where_it_refuses_a_structure(
    spark: Any, servers: CatalogServers, tmp_path: Path
) -> None:
    target = ServedTarget(spark, catalog_type="hive", uri=servers.metastore, warehouse=str(tmp_path))
    wide, less = table(id="int32", a="string", n="int32"), table(id="int32", n="int32")
    target.write(Batch(wide).add("c", wide, 1, {"id": "1", "a": "x", "n": "7"}), 0)
    batch = Batch(less).add("c", less, 2, {"id": "2", "n": "8"})
    with pytest.raises(SchemaError, match="compares columns by position") as caught:
        target.write(batch, 1, schema_change_behavior="evolve")
    assert "hive.metastore.disallow.incompatible.col.type.changes" in caught.value.remedy
    assert target.content(wide) == [(1, "x", 7)]
    target.given["uri"] = servers.lenient_metastore
    target.given["catalog"] += "_lenient"
    target.write(batch, 1, schema_change_behavior="evolve")
    assert target.content(less) == [(1, 7), (2, 8)]


@pytest.mark.system
def test_comments_go_into_the_catalogue_and_a_missing_namespace_is_created_only_where_that_is_allowed(
    spark: Any, servers: CatalogServers
) -> None:
    target = ServedTarget(spark, catalog_type="rest", uri=servers.rest)
    target.given["namespace"] += ".{table}"
    commented = replace(T, comment="it's a table", columns=(replace(T.columns[0], comment="its key"), *T.columns[1:]))
    batch = Batch(commented).structure(commented, 0).add("c", commented, 1, A)
    with pytest.raises(SinkError, match=r"no namespace .* for the Iceberg table") as caught:
        target.write(batch, create_namespaces="false")
    assert "create_namespaces" in caught.value.remedy
    target.write(batch)
    target.write(Batch(T).add("u", T, 2, {**A, "a": "w"}), 1, create_namespaces="false")
    assert target.content(T) == [(1, "w", "y")]
    found = target.table(T)
    *namespace, _ = found.sql_name.split(".")
    said = found.session.sql(f"describe namespace extended {'.'.join(namespace)}").collect()
    assert any("Headrace" in f"{row['info_value']}" for row in said)
    rows = found.session.sql(f"describe table extended {found.sql_name}").collect()
    comments = {row["col_name"]: row["comment"] or row["data_type"] for row in rows}
    assert (comments["id"], comments["Comment"]) == ("its key", "it's a table")


@pytest.mark.system
def test_tables_whose_names_a_catalogue_takes_for_one_are_refused(spark: Any, servers: CatalogServers) -> None:
    target = ServedTarget(spark, catalog_type="hive", uri=servers.metastore, warehouse="/tmp")
    upper, odd, like = table("T"), table("t 1"), table("t_x0020_1")
    target.write(Batch(T, odd, like).add("c", T, 1, A).add("c", odd, 2, A).add("c", like, 3, A))
    assert [len(target.content(schema)) for schema in (T, odd, like)] == [1, 1, 1]
    with pytest.raises(SinkError, match=r"mirrors db\.dbo\.t, not db\.dbo\.T"):
        target.write(Batch(upper).add("c", upper, 4, A), 1)
    with pytest.raises(SinkError, match="2 tables of the batch would share the target"):
        target.write(Batch(T, upper).add("c", T, 5, A).add("c", upper, 6, A), 1)


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        (DeltaSink.of({"catalog": "spark_catalog"}), "keeps the names of its tables in memory"),
        (DeltaSink.of({"catalog": "nowhere"}), "has no catalogue 'nowhere'"),
        (IcebergSink.of({"catalog": "nowhere"}), "has no catalogue 'nowhere'"),
    ],
)
def test_a_session_without_the_catalogue_is_refused_before_anything(spark: Any, sink: Any, sentence: str) -> None:
    rows = Batch(T).add("c", T, 1, A).rows(spark)
    with pytest.raises(SinkError, match=sentence) as caught:
        sink.write(rows, BatchId("p", "checkpoint", 0))
    assert caught.value.remedy


@pytest.mark.system
def test_delta_tables_in_a_hive_metastore_keep_the_contract(servers: CatalogServers) -> None:
    # Its pytest looks for Java as this one did, and would find what this one starts Java by.
    java = Path(os.environ["HEADRACE_TEST_JAVA"]).parents[1]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "not soak",
            "-p",
            "no:cacheprovider",
            "tests/sinks/delta_by_name.py",
        ],
        env={**os.environ, METASTORE: servers.metastore, "JAVA_HOME": str(java)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]


PAGE = Path(__file__).parents[2] / "docs" / "apply.md"
SNIPPETS = [
    sink
    for block in re.findall(r"^```yaml\n(- type: .*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for sink in yaml.safe_load(block)
]
RUNNING = [sink for sink in SNIPPETS if "//metastore:" in sink.get("uri", "") or "//localhost:" in sink.get("uri", "")]


def headrace(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.system
def test_the_pipelines_of_the_page_run_where_their_catalogues_do(tmp_path: Path, servers: CatalogServers) -> None:
    assert (len(RUNNING), len(SNIPPETS)) == (3, 7)
    shop = Shop(tmp_path)
    served = {"thrift://metastore:9083": servers.metastore, "http://localhost:8181": servers.rest}
    source = {"type": "sqlserver", "driver": "emulator", "hostname": str(tmp_path / "server"), "database": "shop"}
    sections = {
        "source": source,
        "sinks": [{**sink, "uri": served[sink["uri"]]} for sink in RUNNING],
        "pipeline": {"name": "named", "checkpoint": "state"},
    }
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(sections))
    checked = headrace(tmp_path, "check", "pipeline.yaml")
    for said in ("sink 1 (delta): The Hive metastore answers", "sink 3 (iceberg): The REST catalogue answers"):
        assert said in checked
    for location in ("spark_catalog.shop_dbo.t", "hive.dbo.t", "rest.raw.dbo.t"):
        assert location in checked
    headrace(tmp_path, "run", "pipeline.yaml", "--once")
    planned = headrace(tmp_path, "plan", "pipeline.yaml")
    for location in ("spark_catalog.shop_dbo.t", "hive.dbo.t", "rest.raw.dbo.t"):
        assert re.search(rf"{re.escape(location)}, exists", planned), planned
    shop.database.execute("INSERT INTO dbo.t VALUES (99)")
    shop.database.capture()
    headrace(tmp_path, "run", "pipeline.yaml", "--once")
    assert len(re.findall("equal", headrace(tmp_path, "verify", "pipeline.yaml"))) >= 3


@pytest.mark.parametrize("sink", [sink for sink in SNIPPETS if sink not in RUNNING], ids=lambda sink: sink["catalog"])
def test_the_other_pipelines_of_the_page_are_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: dict[str, Any]
) -> None:
    for name in ("POLARIS_CREDENTIAL", "DATABRICKS_TOKEN"):
        monkeypatch.setenv(name, "secret")
    file = tmp_path / "pipeline.yaml"
    source = {"type": "sqlserver", "driver": "emulator", "hostname": str(tmp_path / "server"), "database": "shop"}
    pipeline = {"name": "named", "checkpoint": "state"}
    file.write_text(yaml.safe_dump({"source": source, "sink": sink, "pipeline": pipeline}))
    assert load_pipeline(file).name == "named"
