"""Rule: a mirror has a folder or a name, never both; two tables never share a name, whatever theirs are; and what
options say of a catalogue contradicts nothing."""

from __future__ import annotations

import http.server
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes.table import TableId
from headrace.errors import HeadraceError, OptionError, SinkError
from headrace.pipeline import load_pipeline
from headrace.sinks.lake.catalog import NamePattern, escaped, identifier
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.spark.jars import ICEBERG


def made(kind: Any, options: dict[str, str]) -> Any:
    if kind is IcebergSink and not ICEBERG:
        pytest.skip("Iceberg has no release for this Spark")
    return kind.of(options)


ORDERS = TableId("shop", "dbo", "Order Details")
NO_SCHEMA = TableId("shop", "", "orders")
UC = {"catalog": "main"}
HIVE = {"catalog": "spark_catalog", "catalog_type": "hive", "warehouse": "/w", "uri": "thrift://h:9083"}
REST = {"catalog_type": "rest", "uri": "https://h/api/catalog"}


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("order_items", "order_items"),
        ("Orders2", "Orders2"),
        ("Order Details", "Order_x0020_Details"),
        ("a.b", "a_x002e_b"),
        ("$sys-tab/é", "_x0024_sys_x002d_tab_x002f__x00e9_"),
        ("😀", "_x1f600_"),
        ("Order_x0020_Details", "Order_x005f_x0020_Details"),
        ("index_xyz", "index_xyz"),
    ],
)
def test_a_name_is_written_as_every_catalogue_takes_it(name: str, written: str) -> None:
    assert identifier(name) == written


TRICKY = st.text("_xX0025f e.é😀", max_size=12)


@pytest.mark.parametrize("written", [identifier, escaped])
@given(one=TRICKY, other=TRICKY)
def test_two_names_are_never_written_as_one(written: Any, one: str, other: str) -> None:
    assert (written(one) == written(other)) == (one == other)


@given(name=TRICKY)
def test_a_written_name_can_be_read_back(name: str) -> None:
    read = re.sub(r"_x([0-9a-f]{4,6})_", lambda found: chr(int(found[1], 16)), identifier(name))
    assert read == name
    assert re.fullmatch(r"\w*", identifier(name), re.ASCII)


@pytest.mark.parametrize(
    ("sink", "table", "location"),
    [
        ((DeltaSink, UC), ORDERS, "main.dbo.Order_x0020_Details"),
        ((DeltaSink, UC), NO_SCHEMA, "main.shop.orders"),
        (
            (DeltaSink, UC | {"namespace": "{database}_{schema}"}),
            ORDERS,
            "main.shop_dbo.Order_x0020_Details",
        ),
        (
            (DeltaSink, UC | {"namespace": "raw", "table_name": "{database}_{table}"}),
            NO_SCHEMA,
            "main.raw.shop_orders",
        ),
        ((DeltaSink, HIVE), ORDERS, "spark_catalog.dbo.Order_x0020_Details"),
        ((IcebergSink, {"warehouse": "/w"}), ORDERS, "lake.dbo.Order~20Details"),
        ((IcebergSink, {"warehouse": "/w", "namespace": "a.`b.c`.{schema}"}), NO_SCHEMA, SinkError),
        ((IcebergSink, {"warehouse": "/w", "namespace": "a.`b.c`"}), NO_SCHEMA, "lake.a.b.c.orders"),
        ((IcebergSink, REST), ORDERS, "lake.dbo.Order_x0020_Details"),
        (
            (IcebergSink, REST | {"catalog": "p", "namespace": "raw.{database}"}),
            ORDERS,
            "p.raw.shop.Order_x0020_Details",
        ),
    ],
)
def test_options_say_what_a_mirror_is_called(sink: Any, table: TableId, location: Any) -> None:
    if location is SinkError:
        with pytest.raises(SinkError, match=r"gives table shop\.orders an empty name"):
            made(*sink).location(table)
    else:
        assert made(*sink).location(table) == location


@pytest.mark.parametrize("text", ["", "a..b", "{tabel}", "a.{schema", "`a", "{schema!r}", "{}"])
def test_a_pattern_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not a valid namespace") as caught:
        NamePattern.parse(text, option="namespace")
    assert "{database}, {schema} and {table}" in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (DeltaSink, {}, "needs one of the options 'path' and 'catalog'"),
        (DeltaSink, {"path": "/lake", "catalog": "main"}, "has both options, 'path' and 'catalog'"),
        (DeltaSink, {"path": "/lake", "namespace": "sales"}, "Option 'namespace' .* is for tables with names"),
        (DeltaSink, {"path": "/lake", "table_name": "x_{table}"}, "Option 'table_name' .* is for tables with names"),
        (DeltaSink, {"path": "/lake", "catalog_type": "hive"}, "Option 'catalog_type' .* is for tables with names"),
        (DeltaSink, UC | {"table_name": "sales.{table}"}, "has more than the name of a table"),
        (DeltaSink, UC | {"namespace": "{tabel}"}, "is not a valid namespace"),
        (DeltaSink, UC | {"uri": "thrift://h"}, "define a catalogue"),
        (DeltaSink, UC | {"catalog_type": "hive", "warehouse": "/w"}, "needs 'warehouse', and spark_catalog"),
        (DeltaSink, {"catalog": "spark_catalog", "catalog_type": "hive"}, "needs 'warehouse', and spark_catalog"),
        (IcebergSink, {"catalog_type": "rest"}, "'rest' needs the option 'uri'"),
        (IcebergSink, {"catalog_type": "hive", "warehouse": "/w"}, "'hive' needs the option 'uri'"),
        (IcebergSink, {"warehouse": "/w", "token": "hunter2"}, "'token' .* has no effect with catalog_type 'hadoop'"),
        (IcebergSink, REST | {"password": "hunter2"}, "'password' .* has no effect with catalog_type 'rest'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(kind: Any, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as caught:
        made(kind, options)
    assert caught.value.remedy
    assert "hunter2" not in f"{caught.value}{caught.value.remedy}"


DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
UNITY = {"spark.sql.catalog.main": "io.unitycatalog.spark.UCSingleCatalog"}
SPARK_CATALOG = {"catalog": "spark_catalog"}


@pytest.mark.parametrize(
    ("options", "session", "sentence"),
    [
        ({"path": "/tmp"}, {}, "does not have Delta Lake"),
        ({"path": "/tmp"}, DELTA, ""),
        (SPARK_CATALOG, DELTA, "keeps the names of its tables in memory"),
        (SPARK_CATALOG, DELTA | {"spark.sql.catalogImplementation": "hive"}, ""),
        (UC, DELTA, "has no catalogue 'main'"),
        (UC, DELTA | UNITY, ""),
        (UC, UNITY | {"spark.sql.extensions": DELTA["spark.sql.extensions"]}, ""),
        (UC, UNITY, "does not have Delta Lake"),
    ],
)
def test_a_session_is_refused_that_can_not_keep_the_tables(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], session: dict[str, str], sentence: str
) -> None:
    conf = SimpleNamespace(get=lambda name, default=None: session.get(name, default))
    monkeypatch.setattr(
        "pyspark.sql.SparkSession.getActiveSession", lambda: SimpleNamespace(_jsparkSession=object(), conf=conf)
    )
    sink = DeltaSink.of(options)
    if sentence:
        with pytest.raises(SinkError, match=sentence) as caught:
            sink.check()
        assert caught.value.remedy
    else:
        sink.check()


def test_secrets_of_a_catalogue_are_never_shown() -> None:
    given = REST | {"token": "hunter2", "credential": "me:hunter2", "catalog.s3.secret-access-key": "hunter2"}
    sink = made(IcebergSink, given)
    assert "hunter2" not in f"{sink.settings!r} {vars(sink)!r}"
    hive = DeltaSink.of(HIVE | {"catalog.javax.jdo.option.ConnectionPassword": "hunter2"})
    assert "hunter2" not in f"{hive.settings!r} {vars(hive)!r}"


METASTORE = {"catalog": "other", "catalog_type": "hive", "uri": "thrift://h:9083/", "warehouse": "/i"}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ((DeltaSink, UC), (DeltaSink, {"catalog": "main", "stored_as_scd_type": 2}), True),
        ((DeltaSink, UC), (DeltaSink, UC | {"namespace": "history"}), False),
        ((DeltaSink, UC), (DeltaSink, {"catalog": "dev"}), False),
        ((DeltaSink, UC), (IcebergSink, {"catalog": "main"}), True),
        ((DeltaSink, HIVE), (IcebergSink, METASTORE), True),
        (
            (IcebergSink, REST),
            (IcebergSink, REST | {"catalog": "b", "uri": "https://h/api/catalog/"}),
            True,
        ),
        ((IcebergSink, REST), (IcebergSink, REST | {"warehouse": "b"}), False),
    ],
)
def test_two_sinks_share_a_place_where_they_write_the_same_named_table(one: Any, other: Any, shared: bool) -> None:
    assert bool(made(*one).places(NO_SCHEMA) & made(*other).places(NO_SCHEMA)) is shared


def pipeline(folder: Path, *sinks: dict[str, Any]) -> Path:
    file = folder / "pipeline.yaml"
    source = {"type": "sqlserver", "driver": "emulator", "hostname": str(folder / "server"), "database": "shop"}
    sections = {"source": source, "sinks": sinks, "pipeline": {"name": "named", "checkpoint": "state"}}
    file.write_text(json.dumps(sections))
    return file


def test_a_pipeline_whose_sinks_write_the_same_names_is_refused(tmp_path: Path) -> None:
    sinks = ({"type": "delta", **UC}, {"type": "delta", "stored_as_scd_type": 2, **UC})
    with pytest.raises(OptionError, match=r"write the same tables to catalogue main"):
        load_pipeline(pipeline(tmp_path, *sinks))


def test_a_pipeline_says_what_its_session_needs_and_refuses_two_metastores(tmp_path: Path) -> None:
    hive = {"type": "delta", **HIVE, "warehouse": "tables", "catalog.hive.metastore.sasl.enabled": "true"}
    assert load_pipeline(pipeline(tmp_path, hive)).session_settings == {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "tables"),
        "spark.hadoop.hive.metastore.uris": "thrift://h:9083",
        "spark.hadoop.hive.metastore.sasl.enabled": "true",
    }
    with pytest.raises(OptionError, match=r"Sink 1 \(delta\) and sink 2 \(delta\) need .* 'spark.hadoop.hive.meta"):
        load_pipeline(pipeline(tmp_path, hive, {**hive, "uri": "thrift://other:9083", "namespace": "b"}))


@pytest.mark.parametrize(
    ("kind", "warehouse"), [("rest", "prod"), ("hive", "{folder}/prod"), ("hadoop", "{folder}/prod")]
)
def test_the_warehouse_of_a_rest_catalogue_is_a_name(tmp_path: Path, kind: str, warehouse: str) -> None:
    uri = {} if kind == "hadoop" else {"uri": "https://h"}
    loaded = load_pipeline(pipeline(tmp_path, {"type": "iceberg", "catalog_type": kind, "warehouse": "prod", **uri}))
    ((_, sink),) = loaded._model.sinks
    assert sink.settings.warehouse == warehouse.format(folder=tmp_path)


class Catalogue(http.server.BaseHTTPRequestHandler):
    """A REST catalogue that knows one token, and one login that it gives it for."""

    def do_GET(self) -> None:
        if self.path.startswith("/not/"):
            self._say(200, {"hello": "world"})
        elif self.headers.get("Authorization") == "Bearer t0k3n" and self.path == "/v1/config?warehouse=prod":
            self._say(200, {"defaults": {}, "overrides": {}})
        else:
            self._say(401, {})

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "client_id=me&" in form + "&" and "client_secret=hunter2" in form and "scope=ALL" in form:
            self._say(200, {"access_token": "t0k3n"})
        else:
            self._say(400, {"error": "invalid_client"})

    def _say(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def catalogue() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Catalogue) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("login", "path", "says"),
    [
        ({"token": "t0k3n"}, "", "accepts the login"),
        ({"credential": "me:hunter2", "catalog.scope": "ALL"}, "/", "accepts the login"),
        ({"token": "other"}, "", "refuses the request (401"),
        ({}, "", "refuses the request (401"),
        ({"credential": "me:wrong", "catalog.scope": "ALL"}, "", "refuses the request (400"),
        ({"catalog.rest.sigv4-enabled": "true"}, "", "answers; whether it accepts the login shows"),
        ({"token": "t0k3n"}, "/not", "is no Iceberg REST catalogue"),
    ],
)
def test_check_asks_a_rest_catalogue_whether_it_takes_the_login(
    catalogue: str, login: dict[str, str], path: str, says: str
) -> None:
    sink = made(IcebergSink, {"catalog_type": "rest", "uri": catalogue + path, "warehouse": "prod", **login})
    try:
        said = sink.reach()
    except HeadraceError as error:
        said = f"{error.message} {error.remedy}"
    assert says in said
    assert not any(secret in said for secret in ("hunter2", "t0k3n", "wrong"))


def test_check_finds_a_metastore_that_answers_and_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # The command `check` starts no Spark; a session of other tests has no metastore.
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"thrift://127.0.0.1:{server.getsockname()[1]}"
        assert "answers" in DeltaSink.of({**HIVE, "warehouse": "/tmp", "uri": uri}).reach()
        assert (
            "answers"
            in made(IcebergSink, {**METASTORE, "warehouse": "/tmp", "uri": f"thrift://127.0.0.1:1,{uri}"}).reach()
        )
    for address, sentence in ((uri, "can't be reached"), ("h:9083", "is not the address of a Hive metastore")):
        with pytest.raises(HeadraceError, match=sentence) as caught:
            DeltaSink.of({**HIVE, "warehouse": "/tmp", "uri": address}).reach()
        assert caught.value.remedy


def test_permissions_of_a_named_target_are_those_of_its_folder_or_unknown(tmp_path: Path) -> None:
    assert DeltaSink.of(HIVE | {"warehouse": str(tmp_path)}).permissions([], []).known
    for sink in (DeltaSink.of(UC), made(IcebergSink, REST)):
        found = sink.permissions([], [])
        assert (found.known, found.missing) == (False, ())
