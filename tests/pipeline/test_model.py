"""Every mistake in a pipeline file is one sentence with file, line, the thing and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.options import as_text
from headrace.pipeline import load_pipeline
from headrace.pipeline.model import Model, read_model
from headrace.pipeline.shaping.routes import Destination
from headrace.pipeline.shaping.transforms import TransformSettings
from headrace.pipeline.watch import ObserveSettings

SOURCE = "source: {type: folder, hostname: there}\n"
SINKS = "sinks: [{type: list_changes, path: ./lake}]\n"
RUN = "pipeline: {name: sales, checkpoint: ./state}\n"
DOC = {option.name: option.doc for option in (*TransformSettings.declared, *ObserveSettings.declared)}


def model(folder: Path, text: str) -> Model:
    file = folder / "p.yaml"
    file.write_text(text)
    return read_model(file)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    read = model(tmp_path, SOURCE + SINKS + RUN)
    assert read.checkpoint == str(tmp_path / "state")
    assert read.targets[0].sink.settings.path == str(tmp_path / "lake")
    assert (read.name, read.trigger) == ("sales", "1 seconds")


@pytest.mark.parametrize("path", ["/lake", "s3a://bucket/lake", "dbfs:/lake", "file:///lake"])
def test_absolute_paths_and_urls_stay(tmp_path: Path, path: str) -> None:
    read = model(
        tmp_path,
        f"{SOURCE}sink: {{type: list_changes, path: '{path}'}}\npipeline: {{name: a, checkpoint: '{path}-state'}}",
    )
    assert (read.checkpoint, read.targets[0].sink.settings.path) == (f"{path}-state", path)


def test_scalars_stay_text(tmp_path: Path) -> None:
    text = "source: {type: folder, hostname: 0123, password: 1_000}\n" + SINKS + RUN
    read = model(tmp_path, text)
    assert read.source_options == {"hostname": "0123", "password": "1_000"}


@pytest.mark.parametrize(
    ("channels", "format", "mistake"),
    [
        ("log", "canal_json", None),
        ("'sink, log'", "debezium_json, topic.prefix: p", None),
        ("sink", "canal_json", "No sink's format sends notifications"),
        ("jmx", "canal_json", "'jmx' shows beans of a Java program"),
        ("mail", "canal_json", "'mail' is none of log and sink"),
    ],
)
def test_notifications_need_a_channel_that_is_there_and_a_format_that_sends_them(
    tmp_path: Path, channels: str, format: str, mistake: str | None
) -> None:
    text = (
        f"source: {{type: sqlserver, hostname: h, database: d, notification.enabled.channels: {channels}, "
        "notification.sink.topic.name: notes}\n"
        f"format: {{type: {format}}}\n"
        "sink: {type: files, path: ./out}\n" + RUN
    )
    if mistake is None:
        model(tmp_path, text)
        return
    with pytest.raises(OptionError, match=mistake):
        model(tmp_path, text)


@pytest.mark.parametrize(
    ("source", "format", "remedy"),
    [
        ("", "d", "skipped.operations: 'd'"),
        (", skipped.operations: c", "d,t", "skipped.operations: 'c,d'"),
        (", skipped.operations: d", "d,t", None),
        (", skipped.operations: d", "t", None),
        (", provide.transaction.metadata: false", "d", None),
    ],
)
def test_what_a_format_leaves_out_no_transaction_counts(
    tmp_path: Path, source: str, format: str, remedy: str | None
) -> None:
    transactions = "" if "metadata" in source else ", provide.transaction.metadata: true"
    text = (
        f"source: {{type: sqlserver, hostname: h, database: d{transactions}{source}}}\n"
        f"format: {{type: debezium_json, topic.prefix: p, skipped.operations: '{format}'}}\n"
        "sink: {type: files, path: ./out}\n" + RUN
    )
    if remedy is None:
        model(tmp_path, text)
        return
    with pytest.raises(OptionError, match=r"END of a transaction would count operations \(d\) .* of sink 1") as error:
        model(tmp_path, text)
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("said", "sinks", "choice"),
    [
        ("", ["{type: kafka, bootstrap.servers: k}"], "warn"),
        ("", ["{type: kafka, bootstrap.servers: k}", "{type: files, path: ./out}"], "warn"),
        ("", ["{type: kafka, bootstrap.servers: k}", "{type: delta, path: ./lake}"], "reread"),
        ("", ["{type: delta, path: ./lake}"], "reread"),
        (", on_rewrite: reread", ["{type: kafka, bootstrap.servers: k}"], "reread"),
        (", onRewrite: fail", ["{type: kafka, bootstrap.servers: k}"], "fail"),
        (", on.rewrite: warn", ["{type: delta, path: ./lake}"], "warn"),
    ],
)
@pytest.mark.parametrize("source", ["postgresql", "mysql"])
def test_where_all_sinks_take_messages_the_log_says_what_a_change_of_structure_did_to_rows(
    tmp_path: Path, source: str, said: str, sinks: list[str], choice: str
) -> None:
    database = ", database: d" if source == "postgresql" else ""
    messages = "format: {type: debezium_json, topic.prefix: p}\n" if "delta" not in sinks[0] else ""
    made = model(
        tmp_path,
        f"source: {{type: {source}, hostname: h{database}{said}}}\n{messages}sinks: [{', '.join(sinks)}]\n{RUN}",
    )
    assert made.source.settings.on_rewrite == choice
    assert made.warns_of_rewrites == (not said and choice == "warn")
    # Spark's reader makes a source of its own of the options.
    assert type(made.source).of(made.source_options).settings.on_rewrite == choice


@pytest.mark.parametrize(
    ("said", "rest", "tables"),
    [
        ("", "sinks: [{type: delta, path: ./lake}]", ()),
        ("", "sinks: [{type: delta, path: ./lake, delete_mode: soft}, {type: jdbc, url: 'mariadb://h/d'}]", ()),
        ("", "sinks: [{type: delta, path: ./lake, stored_as_scd_type: 2}]", ("*",)),
        # A log of changes keeps what it has, and a table beside it does not wait for it.
        ("", "sinks: [{type: delta, path: ./lake, stored_as_scd_type: append}]", ("*",)),
        ("", "sinks: [{type: delta, path: ./lake}, {type: delta, path: ./b, stored_as_scd_type: append}]", ()),
        (", reread_added_columns: s.t", "sinks: [{type: delta, path: ./lake}]", ("s.t",)),
        (", rereadAddedColumns: s.t", "sinks: [{type: delta, path: ./a, stored_as_scd_type: 2}]", ("*",)),
        # Rows of these do not reach the table as they are.
        (", rereadAddedColumns: s.t", "transforms: [{tables: [s.a, 're:s.b,c'], filter: id > 1}]\n"
            "sinks: [{type: delta, path: ./lake}]", ("s.t", "s.a", "re:s.b,c")),
        ("", "sinks: [{type: delta, path: ./lake, routes: [{tables: s.x, to: s.y}, "
            "{tables: 's.p*', to: s.p, merge: true}]}]", ("s.p*",)),
    ],
)  # fmt: skip
def test_tables_whose_rows_reach_a_sink_as_they_are_get_the_value_of_a_column_that_was_added_without_a_read(
    tmp_path: Path, said: str, rest: str, tables: tuple[str, ...]
) -> None:
    made = model(tmp_path, f"source: {{type: postgresql, hostname: h, database: d{said}}}\n{rest}\n{RUN}")
    for source in (made.source, type(made.source).of({n: as_text(v) for n, v in made.source_options.items()})):
        assert tuple(pattern.text for pattern in source.settings.reread_added_columns) == tables


@pytest.mark.parametrize(
    ("text", "trigger"),
    [("500ms", "500 milliseconds"), ("10 seconds", "10 seconds"), ("5m", "5 minutes"), ("1h", "1 hours")],
)
def test_triggers(tmp_path: Path, text: str, trigger: str) -> None:
    assert model(tmp_path, f"{SOURCE}{SINKS}pipeline: {{name: a, checkpoint: c, trigger: {text}}}").trigger == trigger


def test_metrics_are_served_only_where_it_is_said(tmp_path: Path) -> None:
    assert model(tmp_path, SOURCE + SINKS + RUN).observe.prometheus is None
    assert model(tmp_path, SOURCE + SINKS + RUN + "observe: {}").observe.prometheus is None
    read = model(tmp_path, SOURCE + SINKS + RUN + "observe: {prometheus: 9464}")
    assert str(read.observe.prometheus) == "127.0.0.1:9464"
    assert read.observe.opentelemetry is None
    read = model(tmp_path, SOURCE + SINKS + RUN + "observe: {opentelemetry: http://collector:4318}")
    assert read.observe.opentelemetry == "http://collector:4318/v1/metrics"
    with pytest.raises(OptionError, match=r"opentelemetry.*write http://collector:4318"):
        model(tmp_path, SOURCE + SINKS + RUN + "observe: {opentelemetry: collector}")


def test_transforms_of_all_sinks_go_before_a_sinks_own_and_routes_are_the_sinks(tmp_path: Path) -> None:
    text = """
transforms: [{tables: dbo.*, filter: id > 1}]
sinks:
- {type: list_changes, path: a}
- type: list_changes
  path: b
  transforms: [{exclude_columns: [note], column.mask.hash.v2.SHA-256.with.salt.aBc: [mail]}]
  routes: [{tables: dbo.a, to: "x.{table}"}]
  unrouted_tables: leave_out
"""
    plain, own = model(tmp_path, SOURCE + RUN + text).targets
    assert [one.label for one in plain.shaping.transforms] == ["transform 1"]
    assert [one.label for one in own.shaping.transforms] == ["transform 1", "transform 1 of sink 2 (list_changes)"]
    assert [mask.option for mask in own.shaping.transforms[1].masks] == [
        "column.mask.hash.v2.SHA-256.with.salt.*********(redacted)"
    ]
    assert own.shaping.routes.destination(TableId("d", "dbo", "a")) == Destination(TableId("d", "x", "a"))
    assert own.shaping.routes.destination(TableId("d", "dbo", "b")) is None
    # Sinks with the same way share what it makes; another salt is another way.
    other = model(tmp_path, SOURCE + RUN + text.replace("aBc", "aBd")).targets
    assert (other[0].shaping.key == plain.shaping.key, other[1].shaping.key == own.shaping.key) == (True, False)
    assert model(tmp_path, SOURCE + SINKS + RUN).targets[0].shaping.key == ""


ERRORS = [
    (
        SOURCE + SINKS + RUN + "transforms: [{tables: dbo.a, fliter: id > 1}]",
        4,
        "Unknown option 'fliter' for transform 1. Did you mean 'filter'?",
    ),
    (
        SOURCE + SINKS + RUN + "transforms: [{tables: dbo.a}]",
        4,
        "Transform 1 does nothing. Give filter, computed_columns, include_columns, exclude_columns or a mask.",
    ),
    (
        SOURCE + SINKS + RUN + "transforms:\n- filter: id > 1\n- {include_columns: [a], exclude_columns: [b]}",
        6,
        "Options 'include_columns' and 'exclude_columns' are both given. Keep one.",
    ),
    (
        SOURCE + SINKS + RUN + "transforms: [{computed_columns: [a]}]",
        4,
        "Option 'computed_columns' can't be ['a']: write {name: SQL expression}. See: " + DOC["computed_columns"],
    ),
    (
        SOURCE + SINKS + RUN + "transforms: [{column.mask.hash.v2.SHA-256: [a]}]",
        4,
        "Option 'column.mask.hash.v2.SHA-256' has no salt. Set 'column_mask_salt'.",
    ),
    (
        SOURCE + SINKS + RUN + "transforms: [{column.mask.hash.v2.SHA3-256: [a], column_mask_salt: S}]",
        4,
        "Option 'column.mask.hash.v2.SHA3-256' can't be done by a transform. "
        "Write column.mask.hash.v2.SHA-256, or mask the column in the source.",
    ),
    (
        SOURCE + SINKS + RUN + "transforms: [{column.mask.with.2.chars: [a], column.truncate.to.2.chars: [b, a]}]",
        4,
        "Options 'column.mask.with.2.chars' and 'column.truncate.to.2.chars' both name column 'a'. "
        "Leave the column out of one of them.",
    ),
    (
        SOURCE + SINKS + RUN + "transforms: [{column.mask.with.2.chars: [a], column_mask_salt: geheim}]",
        4,
        "Option 'column_mask_salt' is for hashes only. Remove it, or add a hash.",
    ),
    (
        SOURCE + SINKS + RUN + "transforms: {filter: a}",
        4,
        "Key 'transforms' must be a list. See the example in the documentation of pipelines.",
    ),
    (
        SOURCE + "sinks:\n- type: list_changes\n  path: ./lake\n  routes: [{tables: a, target: b}]\n" + RUN,
        5,
        "Unknown option 'target' for route 1 of sink 1 (list_changes). Known: merge, tables, to.",
    ),
    (
        SOURCE + SINKS + RUN + "routes: [{tables: a}]",
        4,
        "Key 'routes' stands in no sink. Put it into the sink that it is for.",
    ),
    (
        SOURCE + "sinks:\n- type: list_changes\n  path: ./lake\n  routes: {tables: a}\n" + RUN,
        5,
        "Key 'routes' must be a list of mappings. Write: - {tables: dbo.orders, to: ...}.",
    ),
    (
        SOURCE + "sinks:\n- type: list_changes\n  path: ./lake\n  unrouted_tables: drop\n" + RUN,
        5,
        "Option 'unrouted_tables' can't be 'drop'. Known: keep, leave_out.",
    ),
    (
        SOURCE + "sinks:\n- type: list_changes\n  path: ./lake\n  transforms: [{filter: a > 1, fitler: b}]\n" + RUN,
        5,
        "Unknown option 'fitler' for transform 1 of sink 1 (list_changes). Did you mean 'filter'?",
    ),
    (
        SOURCE + SINKS + RUN + "observe: {prometeus: 1}",
        4,
        "Unknown option 'prometeus' for section 'observe'. Did you mean 'prometheus'?",
    ),
    (
        SOURCE + SINKS + RUN + "observe: {prometheus: here}",
        4,
        "Option 'prometheus' can't be 'here': write 127.0.0.1:9464, or a port alone. See: " + DOC["prometheus"],
    ),
    ("", 1, "The file is empty. A pipeline has source, sinks and pipeline."),
    ("- a\n", 1, "A pipeline file is a mapping. Begin with `source:`, `sinks:` and `pipeline:`."),
    (
        "source: {type: folder\nsinks: 1\n",
        2,
        "This is not valid YAML: expected ',' or '}', but got ':'. Check indentation, quotes and brackets there.",
    ),
    (SOURCE + SOURCE, 2, "Key 'source' is given twice. Keep one of them."),
    (SOURCE + SINKS + RUN + "sourse: 1\n", 4, "Unknown key 'sourse'. Did you mean 'source'?"),
    (
        SOURCE + SINKS + RUN + "route: []\n",
        4,
        "Unknown key 'route'. Known: dead_letter, format, observe, pipeline, sink, sinks, source, transforms.",
    ),
    (
        SINKS + RUN,
        1,
        "Key 'source' is missing. Say where changes come from: source: {type: sqlserver, ...}.",
    ),
    (SOURCE + SINKS, 1, "Key 'pipeline' is missing. Add pipeline: {name: ..., checkpoint: ...}."),
    (
        SOURCE + SINKS + "pipeline:\n  name: a\n",
        3,
        "Key 'pipeline.checkpoint' is missing. Name a folder or URL where the state is kept.",
    ),
    (
        SOURCE + SINKS + "pipeline:\n  name: a\n  checkpoint: c\n  triger: 1s\n",
        6,
        "Unknown key 'triger' in section 'pipeline'. Did you mean 'trigger'?",
    ),
    (
        SOURCE + SINKS + "pipeline: {name: a, checkpoint: c,\n  trigger: often}\n",
        4,
        "A trigger can't be 'often'. Write 500ms, 1s, 10s or 5m. A run with --once ends when everything is read.",
    ),
    (
        SOURCE + SINKS + "pipeline: {name: a, checkpoint: c,\n  trigger: 0s}\n",
        4,
        "A trigger can't be '0s'. Write 500ms, 1s, 10s or 5m. A run with --once ends when everything is read.",
    ),
    (
        "source: folder\n" + SINKS + RUN,
        1,
        "Key 'source' must be a mapping. See the example in the documentation of pipelines.",
    ),
    (SOURCE + RUN, 1, "Key 'sinks' is missing. Give one: `sinks:` with a list, or `sink:` for a single one."),
    (SOURCE + "sinks: []\n" + RUN, 2, "The list 'sinks' is empty. Name at least one sink."),
    (
        SOURCE + SINKS + "sink: {type: list_changes, path: a}\n" + RUN,
        2,
        "Both 'sink' and 'sinks' are given. Give one: `sinks:` with a list, or `sink:` for a single one.",
    ),
    ("source: {type: foldr}\n" + SINKS + RUN, 1, "Unknown source 'foldr'. Did you mean 'folder'?"),
    (
        "source:\n  type: folder\n  hostname: there\n  pasword: hunter2\n" + SINKS + RUN,
        4,
        "Unknown option 'pasword' for source 'folder'. Did you mean 'password'?",
    ),
    (
        "source:\n  type: folder\n  commits.per.batch: many\n  hostname: a\n" + SINKS + RUN,
        3,
        "Option 'commits_per_batch' can't be 'many': expected int. See: How many commits a batch holds.",
    ),
    (
        "source: {type: folder}\n" + SINKS + RUN,
        1,
        "Option 'hostname' of source 'folder' is missing. Set it: The folder.",
    ),
    (
        SOURCE + "sinks:\n  - {type: list_changes, path: a}\n  - {type: list_changes, pth: a}\n" + RUN,
        4,
        "Unknown option 'pth' for sink 'list_changes'. Did you mean 'path'?",
    ),
    (
        SOURCE + "sinks:\n  - type: list_messages\n    path: a\n" + RUN,
        3,
        "Sink 'list_messages' takes messages and has no format. Add format: {type: debezium_json}.",
    ),
    (
        SOURCE + "sinks:\n  - type: list_changes\n    path: a\n    format: {type: lines}\n" + RUN,
        5,
        "Sink 'list_changes' takes change rows and no messages. Remove its format.",
    ),
    (
        SOURCE + "format: {type: lines}\n" + SINKS + RUN,
        2,
        "No sink uses 'format'. Remove it, or add a sink that takes messages.",
    ),
    (
        "source: {type: folder, hostname: '${env:HEADRACE_NOT_SET}'}\n" + SINKS + RUN,
        1,
        "The environment variable HEADRACE_NOT_SET is not set. Set it: export HEADRACE_NOT_SET=...",
    ),
    (
        "source: {type: folder, hostname: '${evn:A}'}\n" + SINKS + RUN,
        1,
        "Unknown reference '${evn:...}'. Did you mean 'env'?",
    ),
    ("source: &a\n  type: *a\n", 2, "An alias refers to what it stands in. Write the value out."),
    (
        "source: {type: kafka, bootstrap.servers: k}\n" + SINKS + RUN,
        1,
        "Source 'kafka' needs a format. Add format: {type: debezium_json}.",
    ),
    (
        "source: {type: kafka, bootstrap.servers: k, format: {type: lines}}\n" + SINKS + RUN,
        1,
        "Source 'kafka' needs 'topics' or 'topics.pattern', and not both. Name the topics to read.",
    ),
    (
        "source: {type: kafka, bootstrap.servers: k, topics: ['a.*'], format: {type: lines}}\n" + SINKS + RUN,
        1,
        "'a.*' can't be the name of a topic. Set 'topics_pattern' for a pattern; it is a regular expression, such as "
        "sales[.].*",
    ),
]


@pytest.mark.parametrize(("text", "line", "sentence"), ERRORS, ids=[sentence[:50] for _, _, sentence in ERRORS])
def test_every_mistake_has_a_sentence(tmp_path: Path, text: str, line: int, sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        model(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'p.yaml'}, line {line}: {sentence}"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        load_pipeline(tmp_path / "no.yaml")
    assert str(caught.value) == f"There is no pipeline file '{tmp_path / 'no.yaml'}'. Check the path."


def test_a_package_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(kind: str, name: str) -> None:
        raise ModuleNotFoundError("No module named 'oracledb'", name="oracledb.errors")

    monkeypatch.setattr("headrace.registry.find", find)
    with pytest.raises(OptionError) as caught:
        model(tmp_path, SOURCE + SINKS + RUN)
    assert str(caught.value) == (
        f"{tmp_path / 'p.yaml'}, line 1: The source 'folder' needs the Python package oracledb, which is not "
        "installed. Run pip install 'headrace[oracle]'."
    )


def test_references_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOST", "db.example")
    (tmp_path / "secret").write_text("hunter2\n")
    text = "source: {type: folder, hostname: '${env:HEADRACE_HOST}:1433', password: '${file:secret}'}\n" + SINKS + RUN
    assert model(tmp_path, text).source_options == {"hostname": "db.example:1433", "password": "hunter2"}
    with pytest.raises(OptionError, match=r"line 1: The file 'gone' of '\$\{file:gone\}' can't be read"):
        model(tmp_path, "source: {type: folder, hostname: '${file:gone}'}\n" + SINKS + RUN)


def test_filled_in_values_are_in_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_NUMBER", "hunter2")
    with pytest.raises(OptionError) as caught:
        model(
            tmp_path, "source: {type: folder, hostname: a, commits_per_batch: '${env:HEADRACE_NUMBER}'}\n" + SINKS + RUN
        )
    assert "hunter2" not in str(caught.value) + repr(caught.value)
    assert "commits_per_batch" in str(caught.value)


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    text = "source: {type: folder, hostname: a, password: hunter2}\n" + SINKS + RUN
    read = model(tmp_path, text)
    pipeline = load_pipeline(tmp_path / "p.yaml")
    assert "hunter2" not in repr(read) + repr(pipeline) + repr(read.source.settings)
    assert "hunter2" not in pipeline.hide("login failed for cdc/hunter2 and 'hunter2'")


def test_a_short_secret_hides_only_itself(tmp_path: Path) -> None:
    read = model(tmp_path, "source: {type: folder, hostname: a, password: '1'}\n" + SINKS + RUN)
    assert read.hide("10 rows, password 1") == "10 rows, password *********(redacted)"
