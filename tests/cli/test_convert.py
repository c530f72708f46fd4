"""Debezium's configurations as pipeline files: what is carried over, what is told, what is refused, what is hidden."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.convert.config import Conversion, convert
from headrace.convert.connector_file import parse_properties, read_connector
from headrace.errors import OptionError
from headrace.pipeline.model import Model, read_model

GOLDEN = Path(__file__).parents[1] / "golden" / "convert"
INPUTS = sorted(path for path in GOLDEN.iterdir() if path.suffix != ".yaml")
SQL_SERVER = "io.debezium.connector.sqlserver.SqlServerConnector"
LEAST = {
    "connector.class": SQL_SERVER,
    "database.hostname": "db",
    "database.names": "sales",
    "topic.prefix": "acme",
}


def converted(tmp_path: Path, properties: dict[str, Any], **options: str) -> Conversion:
    """A connector of Kafka Connect with these properties beside those that every one needs."""
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": "c", "config": {**LEAST, **properties}}))
    return convert(file, **options)


def served(tmp_path: Path, properties: dict[str, str]) -> Conversion:
    """The same of Debezium Server."""
    file = tmp_path / "application.properties"
    least = {
        "debezium.sink.type": "kafka",
        "debezium.sink.kafka.producer.bootstrap.servers": "k:9092",
        **{f"debezium.source.{name}": value for name, value in LEAST.items()},
    }
    lines = (f"{name}={value}" for name, value in {**least, **properties}.items())
    file.write_text("\n".join(lines))
    return convert(file)


def model(made: Conversion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The pipeline as a run reads it, with its environment set."""
    values = {"SCHEMA_REGISTRY_URL": "http://registry:8081", "RETRIES": "5"}
    for name in made.environment:
        monkeypatch.setenv(name, values.get(name, f"set-{name.lower()}"))
    file = tmp_path / "pipeline.yaml"
    file.write_text(made.text, encoding="utf-8")
    return read_model(file)


def left(made: Conversion) -> dict[str, str]:
    return {one.name: f"{one.why}: {one.reason}" for one in made.left}


# --- golden files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", INPUTS, ids=[file.name for file in INPUTS])
def test_a_configuration_becomes_the_pipeline_that_is_kept_beside_it(file: Path) -> None:
    assert convert(file).text == file.with_name(f"{file.name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", INPUTS, ids=[file.name for file in INPUTS])
def test_a_converted_pipeline_is_one_that_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = model(convert(file), tmp_path, monkeypatch)
    kinds = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
    assert found.source_type == next((kind for word, kind in kinds.items() if word in file.name), "sqlserver")
    assert [target.type for target in found.targets] == ["kafka"]


@pytest.mark.parametrize("file", INPUTS, ids=[file.name for file in INPUTS])
def test_every_property_is_carried_over_or_told(file: Path) -> None:
    made = convert(file)
    given = {found.given for found in read_connector(file).properties}
    assert made.carried + len(made.left) == len(given)
    assert made.carried > 0
    told = {re.sub(r"salt\..*", "", one.name) for one in made.left}
    assert told <= {re.sub(r"salt\..*", "", name) for name in given}


@pytest.mark.parametrize("file", INPUTS, ids=[file.name for file in INPUTS])
@pytest.mark.parametrize("to_file", [False, True])
def test_no_secret_is_written_out(file: Path, to_file: bool, tmp_path: Path) -> None:
    assert "hush" in file.read_text()
    arguments = ["convert", str(file), "--debug", "--force", *(["-o", str(tmp_path / "made.yaml")] if to_file else [])]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    written = (tmp_path / "made.yaml").read_text() if to_file else ""
    assert "hush" not in result.stdout + result.stderr + written


def test_options_mean_what_the_properties_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = model(convert(GOLDEN / "server_json.properties"), tmp_path, monkeypatch)
    source, format, sink = found.source.settings, found.targets[0].format, found.targets[0].sink.settings  # type: ignore[union-attr]
    assert (source.database, source.port, source.password) == ("sales,stock", "1433", "set-database_password")
    assert source.tables == ("dbo.orders", "dbo.customers", r"re:dbo\.(stock|price)_.*", "dbo.debezium_signal")
    assert (source.trust_server_certificate, source.heartbeat_interval_ms) == ("true", 10_000)
    assert format is not None
    assert (format.settings.topic_prefix, format.settings.schemas_enable) == ("acme", False)
    assert (format.settings.decimal_handling_mode, format.settings.tombstones_on_delete) == ("string", False)
    assert sink.kafka["kafka.sasl.jaas.config"] == "set-kafka_sasl_jaas_config"
    assert (found.name, found.trigger) == ("acme", "500 milliseconds")


def test_a_salt_in_a_name_is_hidden_and_still_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = model(convert(GOLDEN / "connect_routed.json"), tmp_path, monkeypatch)
    settings = found.source.settings
    assert settings.column_mask_hash == {"column.mask.hash.SHA-256": ("dbo.customers.email",)}
    assert settings.column_mask_salt == "set-column_mask_salt"


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1\nb 2\nc", {"a": "1", "b": "2", "c": ""}),
        ("# no\n! neither\n\n  a=1", {"a": "1"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=# kept\\\n# kept too", {"a": "# kept# kept too"}),
        ("a\\=b=1\nc\\ d=2\ne\\:f=3", {"a=b": "1", "c d": "2", "e:f": "3"}),
        ("a=\\t\\n\\u00e9\\q", {"a": "\t\né" + "q"}),
        ("a=dbo\\\\.orders", {"a": "dbo\\.orders"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.dictionaries(st.text(min_size=1, max_size=12), st.text(max_size=12), max_size=5))
def test_what_java_escaped_is_read_back(properties: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be")
        return "".join(f"\\u{units[n]:02X}{units[n + 1]:02x}" for n in range(0, len(units), 2))

    assert parse_properties("\n".join(f"{escaped(k)}={escaped(v)}" for k, v in properties.items())) == properties


@pytest.mark.parametrize("wrapped", [False, True])
def test_both_forms_of_connects_json_are_read(wrapped: bool, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    config = {"name": "c", **LEAST, "database.port": 1433, "tombstones.on.delete": True, "database.instance": None}
    whole = {"name": "c", "config": config, "tasks": [{"connector": "c", "task": 0}], "type": "source"}
    file.write_text(json.dumps(whole if wrapped else config))
    found = read_connector(file)
    values = {p.name: p.value for p in found.properties}
    assert found.name == "c"
    assert (values["database.port"], values["tombstones.on.delete"]) == ("1433", "true")
    assert "database.instance" not in values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"line 1: This is no valid JSON"),
        ('{"name": "c", "config": {"a": {"b": 1}}}', "'a' .* is no text, number or boolean"),
        ("# nothing", "holds no properties"),
        ("{}", "holds no properties"),
        ("a=1", "'connector.class' is missing"),
        (f"connector.class={SQL_SERVER}", "'topic.prefix' is missing"),
        (f"connector.class={SQL_SERVER}\ntopic.prefix=p\ndatabase.names=d", "'hostname' .*is missing"),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_text(text)
    with pytest.raises(OptionError, match=message):
        convert(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="There is no file"):
        convert(tmp_path / "missing.json")
    (tmp_path / "latin").write_bytes(b"a=\xe9")
    with pytest.raises(OptionError, match="it is not UTF-8 text"):
        convert(tmp_path / "latin")


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connector", "message"),
    [
        ("io.debezium.connector.mongodb.MongoDbConnector", "captures MongoDB, for which Headrace has no source"),
        ("io.debezium.connector.vitess.VitessConnector", r"captures Vitess, .*Sources here: .*sqlserver"),
        ("io.debezium.connector.jdbc.JdbcSinkConnector", "is no source connector of Debezium"),
        ("io.confluent.connect.jdbc.JdbcSourceConnector", "is no source connector of Debezium"),
    ],
)
def test_a_source_that_does_not_exist_is_refused(connector: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        converted(tmp_path, {"connector.class": connector})


JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"value.converter": "io.confluent.connect.protobuf.ProtobufConverter"}, "has no format for"),
        ({"value.converter": "io.debezium.converters.CloudEventsConverter"}, "has no format for"),
        ({"key.converter": "org.apache.kafka.connect.storage.StringConverter"}, "'key.converter' is .*has no format"),
        ({"key.converter": JSON, "value.converter": AVRO}, "Keys are written as JSON and values as Avro"),
        ({"key.converter": AVRO, "value.converter": AVRO}, "no schema registry is named"),
        (
            {
                "key.converter": AVRO,
                "value.converter": AVRO,
                "key.converter.schema.registry.url": "http://a:1",
                "value.converter.schema.registry.url": "http://b:1",
            },
            "Keys and values have schema registries of their own",
        ),
        (
            {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"},
            r"'u' \(io.debezium.transforms.ExtractNewRecordState\) can't be converted. .*no flat rows",
        ),
        (
            {"transforms": "f", "transforms.f.type": "io.debezium.transforms.Filter"},
            "write the condition in SQL as 'filter'",
        ),
        (
            {"transforms": "m", "transforms.m.type": "org.apache.kafka.connect.transforms.MaskField$Value"},
            r"the event's envelope and not at columns. Leave it out, and write 'column.mask.with.<n>.chars'",
        ),
        ({"transforms": "x", "transforms.x.type": "org.example.Mine"}, "no such transform"),
        ({"transforms": "x"}, "transforms.x.type is missing"),
        (
            {
                "transforms": "r",
                "transforms.r.type": "io.debezium.transforms.ByLogicalTableRouter",
                "transforms.r.predicate": "p",
            },
            "no predicates",
        ),
        (
            {
                "transforms": "a,b",
                "transforms.a.type": "io.debezium.transforms.ByLogicalTableRouter",
                "transforms.a.topic.regex": "x",
                "transforms.a.topic.replacement": "y",
                "transforms.b.type": "io.debezium.transforms.ByLogicalTableRouter",
            },
            "routes tables once",
        ),
        (
            {
                "transforms": "r",
                "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
                "transforms.r.regex": "x",
                "transforms.r.replacement": "y",
            },
            "leaves the names of schemas as they were",
        ),
        ({"converters": "isbn", "isbn.type": "org.example.Isbn"}, "no custom converters"),
        ({"topic.naming.strategy": "org.example.Naming"}, "'topic.naming.strategy' can't be 'org.example.Naming' here"),
        ({"topic.creation.default.partitions": "none"}, "makes no pipeline. .*can't be 'none'"),
        ({"table.include.list": "dbo.a", "table.exclude.list": "dbo.b"}, "makes no pipeline"),
    ],
)
def test_what_would_make_other_messages_is_refused(properties: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        converted(tmp_path, properties)


def test_all_that_is_refused_is_said_at_once(tmp_path: Path) -> None:
    properties = {
        "debezium.sink.type": "kinesis",
        "debezium.sink.kinesis.region": "eu-central-1",
        "debezium.source.topic.prefix": "",
        "debezium.source.topic.naming.strategy": "org.example.Naming",
        "debezium.source.tabel.include.list": "dbo.x",
        "debezium.source.database.port": "first",
        "debezium.source.tasks.max": "1",
        "debezium.format.key": "protobuf",
        "debezium.format.value": "cloudevents",
        "debezium.format.value.schemas.enable": "false",
        "debezium.transforms": "u,f",
        "debezium.transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
        "debezium.transforms.u.drop.tombstones": "false",
        "debezium.transforms.u.delete.tombstone.handling.mode": "rewrite",
        "debezium.transforms.u.add.fields": "op,source.lsn",
        "debezium.transforms.f.type": "io.debezium.transforms.Filter",
        "debezium.transforms.f.predicate": "p",
    }
    with pytest.raises(OptionError) as caught:
        served(tmp_path, properties)
    sentences = list(map(str, (caught.value, *caught.value.others)))
    wanted = (
        "'debezium.source.topic.naming.strategy'", "'debezium.format.key' is 'protobuf'",
        "'debezium.format.value' is 'cloudevents'", "'u' (io.debezium.transforms.ExtractNewRecordState)", "'f'",
        "'topic.prefix' is missing", "the sink 'kinesis'", "tabel.include.list", "database.port",
    )  # fmt: skip
    assert [part for part, sentence in zip(wanted, sentences, strict=True) if part not in sentence] == []


def test_what_a_run_would_refuse_is_said_beside_what_is_lost(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="makes no pipeline") as caught:
        converted(tmp_path, {"database.hostname": "", "tabel.include.list": "dbo.x"})
    assert ["tabel.include.list" in str(other) for other in caught.value.others] == [True]


@pytest.mark.parametrize("kind", ["kinesis", "pulsar", "http", "redis", ""])
def test_a_sink_of_debezium_server_that_does_not_exist_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"writes to the sink '{kind}', which can't be converted"):
        served(tmp_path, {"debezium.sink.type": kind})


# --- what is told ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("tabel.include.list", "dbo.x", r"unknown: Did you mean 'table.include.list'"),
        ("colour", "blue", "unknown: no option has this name"),
        ("tasks.max", "1", "not needed: Spark reads"),
        ("snapshot.fetch.size", "100", "not needed: rows are fetched as Arrow"),
        ("schema.history.internal.kafka.topic", "h", "not needed: structures are read"),
        ("database.history.store.only.captured.tables.ddl", "true", "not needed: structures"),
        ("signal.file", "x", "not supported: file signals are sent by"),
        ("snapshot.mode", "configuration_based", "not supported: Option 'snapshot_mode' can't be"),
        ("snapshot.isolation.mode", "chaos", "not supported: Option 'snapshot_isolation_mode'"),
        ("heartbeat.interval.ms", "-5", "not supported: .*The minimum is 0"),
        ("event.processing.failure.handling.mode", "ignore", "not supported: Option 'unreadable_changes' can't be"),
        ("event.processing.failure.handling.mode", "fail", "not needed: it says what is done anyway"),
        ("signal.enabled.channels", "source", "not needed: it says"),
        ("signal.enabled.channels", "source,kafka", "not supported: only the channel source"),
        ("signal.kafka.topic", "s", "not supported: signals come from"),
        ("notification.enabled.channels", "jmx", "not supported: Option 'notification_enabled_channels' can't be"),
        ("errors.tolerance", "all", "not supported: an error always stops"),
        ("poll.interval.ms", "soon", "not supported: it is no number of milliseconds"),
        ("database.sendStringParametersAsUnicode", "false", "not needed: .*JDBC driver"),
        ("driver.connectRetryCount", "3", "not needed: .*JDBC driver"),
        ("producer.override.acks", "1", "not needed: acks is always all"),
        ("producer.override.acks", "all", "not needed: it says"),
        ("producer.override.partitioner.class", "x.Y", "not supported: partitions are chosen by key"),
        ("producer.override.max.in.flight.requests.per.connection", "10", "not supported: idempotence allows 5"),
        ("producer.override.transactional.id", "t", "not supported: Spark writes to Kafka without"),
        ("header.converter", "org.apache.kafka.connect.storage.SimpleHeaderConverter", "not needed: headers"),
        ("value.converter.decimal.format", "BASE64", "not needed: it says"),
        ("value.converter.decimal.format", "NUMERIC", "not supported: the format has no such setting"),
        ("predicates", "p", "not needed: no transform uses it"),
        ("database.server.name", "old", "not needed: topic.prefix says the same"),
        ("database.instance", "", "not needed: it is empty"),
        ("topic.regex", "x", "unknown: "),
        ("internal.task.management.timeout.ms", "9", "not supported: it is an internal setting"),
        ("openlineage.integration.config.file.path", "x", "not supported: there is no lineage"),
    ],
)
def test_a_property_without_a_counterpart_is_told_with_the_reason(
    name: str, value: str, told: str, tmp_path: Path
) -> None:
    made = converted(tmp_path, {name: value})
    assert re.match(told, left(made)[name])
    assert f"#   {name}: " in made.text
    assert f"\n  {name}: " not in made.text


@pytest.mark.parametrize(
    ("lists", "listed"),
    [
        # Debezium captures its signal table whatever the lists say.
        ({"table.include.list": "dbo\\.orders"}, "dbo.orders,dbo.signals"),
        ({"table.include.list": "dbo\\.orders,DBO\\.Signals"}, "dbo.orders,DBO.Signals"),
        ({"table.include.list": "dbo\\.s.*"}, "re:dbo\\.s.*"),
        ({"schema.include.list": "shop"}, "re:(?:shop)\\..*,dbo.signals"),
        ({"schema.include.list": "dbo"}, "re:(?:dbo)\\..*"),
        ({}, None),
    ],
)
def test_a_signal_table_is_among_the_tables(lists: dict[str, str], listed: str | None, tmp_path: Path) -> None:
    made = converted(tmp_path, {**lists, "signal.data.collection": "sales.dbo.signals"})
    source = yaml.safe_load(made.text)["source"]
    assert (source["signal.data.collection"], source.get("table.include.list")) == ("sales.dbo.signals", listed)
    without = converted(tmp_path, {"table.exclude.list": "dbo\\.sig.*", "signal.data.collection": "dbo.signals"})
    assert re.match("not supported: the table is in table.exclude.list", left(without)["signal.data.collection"])
    assert "\n  signal.data.collection: " not in without.text


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("table.include.list", "dbo\\.orders", "  table.include.list: dbo.orders"),
        ("table.exclude.list", "dbo.a*, s.b", "  table.exclude.list: re:dbo.a*,s.b"),
        ("schema.exclude.list", "audit", r"  table.exclude.list: re:(?:audit)\..*"),
        ("driver.encrypt", "false", "  database.encrypt: false"),
        ("database.applicationIntent", "ReadOnly", "  database.applicationIntent: ReadOnly"),
        ("snapshot.mode", "no_data", "  snapshot.mode: no_data"),
        ("max.iteration.transactions", "500", "  max.iteration.transactions: 500"),
        ("message.key.columns", "dbo.t:a,b", "  message.key.columns: dbo.t:a,b"),
        ("column.truncate.to.20.chars", "dbo.t.c", "  column.truncate.to.20.chars: dbo.t.c"),
        ("topic.delimiter", "_", "  topic.delimiter: _"),
        ("unavailable.value.placeholder", "__gone", "  unavailable.value.placeholder: __gone"),
        ("extended.headers.enabled", "false", "  extended.headers.enabled: false"),
        ("poll.interval.ms", "250", "  trigger: 250ms"),
        ("producer.override.linger.ms", "5", "  kafka.linger.ms: 5"),
        (
            "producer.override.max.in.flight.requests.per.connection",
            "5",
            "  kafka.max.in.flight.requests.per.connection: 5",
        ),
        ("producer.override.bootstrap.servers", "a:1,b:2", "  bootstrap.servers: a:1,b:2"),
        ("topic.creation.default.cleanup.policy", "compact", "  topic.creation.default.cleanup.policy: compact"),
        ("key.converter.schemas.enable", "false", "  key.converter.schemas.enable: false"),
        ("database.password", "0123", "  database.password: ${env:DATABASE_PASSWORD}"),
        ("database.password", "${env:PW}", "  database.password: ${env:PW}"),
        ("database.password", "${file:/s.properties:pw}", "  database.password: ${env:DATABASE_PASSWORD}"),
        ("database.password", "${dir:/run/secrets:pw}", "  database.password: ${file:/run/secrets/pw}"),
        ("database.password", "${vault:db:pw}", "  database.password: ${env:DATABASE_PASSWORD}"),
        ("database.password", "x${env:PW}", "  database.password: ${env:DATABASE_PASSWORD}"),
        ("producer.override.ssl.keystore.key", "-----BEGIN", "  kafka.ssl.keystore.key: ${env:KAFKA_SSL_KEYSTORE_KEY}"),
        ("database.user", "${env:ME}", "  database.user: ${env:ME}"),
    ],
)
def test_a_property_goes_where_its_option_is(name: str, value: str, line: str, tmp_path: Path) -> None:
    made = converted(tmp_path, {name: value})
    assert line in made.text.splitlines()
    assert name not in left(made)


def test_connect_wraps_messages_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for properties, wanted in (
        ({}, (True, None)),
        ({"value.converter.schemas.enable": "false"}, (False, True)),
        ({"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}, (False, None)),
    ):
        found = model(converted(tmp_path, properties), tmp_path, monkeypatch)
        format = found.targets[0].format
        assert format is not None
        assert (format.settings.schemas_enable, format.settings.key_schemas_enable) == wanted


def test_converters_of_the_worker_are_told(tmp_path: Path) -> None:
    assert "# key.converter and value.converter: the worker's" in converted(tmp_path, {}).text
    both = {"key.converter": JSON, "value.converter": JSON}
    assert "the worker's, taken as" not in converted(tmp_path, both).text


@pytest.mark.parametrize(
    ("settings", "framing"),
    [
        ({}, "apicurio8"),
        ({"apicurio.registry.as-confluent": "true"}, "confluent"),
        ({"apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler"}, "confluent"),
        ({"apicurio.registry.headers.enabled": "true", "apicurio.registry.as-confluent": "true"}, "apicurio-header"),
    ],
)
def test_apicurios_converter_says_the_framing(settings: dict[str, str], framing: str, tmp_path: Path) -> None:
    properties = {"debezium.format.key": "avro", "debezium.format.value": "avro"}
    properties["debezium.format.apicurio.registry.url"] = "http://r/apis/registry/v2"
    made = served(tmp_path, properties | {f"debezium.format.{name}": value for name, value in settings.items()})
    assert f"  framing: {framing}" in made.text.splitlines()
    assert made.left == ()


def test_salts_that_differ_are_told_without_being_shown(tmp_path: Path) -> None:
    one, other = (f"column.mask.hash.v2.SHA-256.with.salt.{salt}" for salt in ("hush-1", "hush-2"))
    made = converted(tmp_path, {one: "dbo.t.a", other: "dbo.t.b"})
    assert [str(one) for one in made.left] == [
        "column.mask.hash.v2.SHA-256.with.salt.*********(redacted): not supported; all hashes have one salt here."
    ]
    assert "hush" not in made.text


def test_a_list_of_schemas_beside_one_of_tables_is_told(tmp_path: Path) -> None:
    made = converted(tmp_path, {"table.include.list": "dbo.a", "schema.include.list": "dbo"})
    assert "  table.include.list: dbo.a" in made.text.splitlines()
    assert left(made) == {
        "schema.include.list": "not supported: a list of schemas has no effect beside a list of tables"
    }


# --- the command ----------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["convert", *arguments])


def test_the_command_prints_the_pipeline_and_tells_the_rest_on_stderr() -> None:
    result = run(str(GOLDEN / "connect_avro.json"), "--force")
    assert result.exit_code == 0
    assert result.stdout == (GOLDEN / "connect_avro.json.yaml").read_text()
    assert "25 of 38 properties were converted." in result.stderr
    assert "  colour: unknown; no option has this name." in result.stderr
    assert "tasks.max" not in result.stderr
    assert "Before a run, set: SCHEMA_REGISTRY_USER_INFO, KAFKA_BOOTSTRAP_SERVERS" in result.stderr


@pytest.mark.parametrize("to_file", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("tabel.include.list", "dbo.orders", "tabel.include.list: unknown; Did you mean 'table.include.list'?"),
        ("snapshot.mode", "initail", "snapshot.mode: not supported; Option 'snapshot_mode' can't be 'initail'."),
        ("errors.tolerance", "all", "errors.tolerance: not supported; an error always stops the run."),
    ],
)
def test_a_file_that_would_mean_something_else_is_not_written_unless_it_is_asked_for(
    name: str, value: str, told: str, to_file: bool, tmp_path: Path
) -> None:
    file, made = tmp_path / "c.json", tmp_path / "p.yaml"
    file.write_text(json.dumps({"name": "c", "config": {**LEAST, name: value}}))
    arguments = (str(file), *(("-o", str(made)) if to_file else ()))
    refused = run(*arguments)
    assert (refused.exit_code, refused.stdout, made.exists()) == (2, "", False)
    assert f"  {told}" in refused.stderr
    assert "asks for 1 thing that the pipeline can't do, so nothing was written." in refused.stderr
    forced = run(*arguments, "--force")
    assert forced.exit_code == 0
    written = made.read_text() if to_file else forced.stdout
    assert f"#   {told}" in written


def test_what_is_done_otherwise_by_default_is_told_unless_the_file_says_it(tmp_path: Path) -> None:
    told = {one.partition(":")[0]: one for one in converted(tmp_path, {}).differences}
    assert told["snapshot.isolation.mode"] == (
        "snapshot.isolation.mode: repeatable_read in Debezium, read_committed here"
    )
    assert told["errors.max.retries"] == "errors.max.retries: -1 in Debezium, 10 here"
    assert "tombstones.on.delete" not in told
    for name, one in told.items():
        assert f"#   {one}." in converted(tmp_path, {}).text
        said = converted(tmp_path, {name: one.split()[1]})
        assert not [other for other in said.differences if other.startswith(f"{name}:")]


def test_the_command_writes_a_file_once(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    arguments = (str(GOLDEN / "connect_routed.json"), "-o", str(file))
    assert run(*arguments).exit_code == 0
    first = file.read_text()
    again = run(*arguments)
    assert again.exit_code == 2
    assert "exists. Choose another file, or use --force." in again.stderr
    forced = run(*arguments, "--force", "--bootstrap-servers", "k:9092")
    assert forced.exit_code == 0
    assert file.read_text() != first
    assert "  bootstrap.servers: k:9092" in file.read_text().splitlines()
    assert run(arguments[0], "-o", str(tmp_path / "no" / "folder.yaml")).exit_code == 2


def test_the_command_refuses_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "c.properties"
    file.write_text("connector.class=io.debezium.connector.mongodb.MongoDbConnector\ntopic.prefix=p\n")
    result = run(str(file), "-o", str(tmp_path / "p.yaml"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "captures MongoDB, for which Headrace has no source." in result.stderr
    assert not (tmp_path / "p.yaml").exists()
