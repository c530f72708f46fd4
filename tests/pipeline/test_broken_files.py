"""Rule: what is wrong in a pipeline file is found before a run, as one sentence with its line and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.pipeline.model import find_mistakes

SOURCE = "source: {type: sqlserver, hostname: there, database: shop, driver: emulator}\n"
SINK = "sink: {type: memory}\n"
RUN = "pipeline: {name: sales, checkpoint: ./state}\n"

BROKEN = [
    (
        SOURCE.replace("shop", "''") + SINK + RUN,
        1,
        "Option 'database' is empty. Set it: The database to capture, or several with commas between.",
    ),
    (
        SOURCE.replace("shop", "'${env:NOTHING}'") + SINK + RUN,
        1,
        "The environment variable NOTHING is empty. Put the value into it, or take the reference out.",
    ),
    (
        SOURCE.replace("shop", "shop, password: '${file:nothing}'") + SINK + RUN,
        1,
        "The file 'nothing' is empty. Put the value into it, or take the reference out.",
    ),
    (
        SOURCE.replace("shop", "shop, tables: []") + SINK + RUN,
        1,
        "Option 'tables' is empty. Give it a value, or leave the option out.",
    ),
    (
        SOURCE.replace("shop", "shop, tables: [dbo.a, '']") + SINK + RUN,
        1,
        "A part of option 'tables' is empty. Write it, or take it out.",
    ),
    (
        SOURCE + "sink: {type: delta, path: ' '}\n" + RUN,
        2,
        "Option 'path' is empty. Set it: ",
    ),
    (
        SOURCE + SINK + "format: {type: canal_json, topic: ''}\n" + RUN,
        3,
        "Option 'topic' is empty. Give it a value, or leave the option out.",
    ),
    (
        SOURCE + SINK + RUN + "transforms: [{filter: ''}]",
        4,
        "Option 'filter' is empty. Give it a value, or leave the option out.",
    ),
    (
        SOURCE + SINK + "pipeline: {name: ' ', checkpoint: ./state}",
        3,
        "Key 'pipeline.name' is empty. Name the pipeline; sinks remember who wrote to them by it.",
    ),
    (
        SOURCE + SINK + "pipeline: {name: sales, checkpoint: ''}",
        3,
        "Key 'pipeline.checkpoint' is empty. Name a folder or URL where the state is kept.",
    ),
    (
        SOURCE.replace("there", "'${env:HOST'") + SINK + RUN,
        1,
        "The reference '${env:HOST' has no closing brace. Write ${env:NAME}.",
    ),
    # Options that stand in the wrong place.
    (
        SOURCE.replace("shop", "shop, topic.prefix: s") + SINK + RUN,
        1,
        "Option 'topic.prefix' belongs to a format, not to source 'sqlserver'. Move it there.",
    ),
    (
        SOURCE.replace("shop", "shop, tombstones_on_delete: false") + SINK + RUN,
        1,
        "Option 'tombstones_on_delete' belongs to a format, not to source 'sqlserver'. Move it there.",
    ),
    (
        SOURCE.replace("shop", "shop, kafka.acks: all") + SINK + RUN,
        1,
        "Option 'kafka.acks' belongs to a sink, not to source 'sqlserver'. Move it there.",
    ),
    (
        SOURCE + "sink: {type: files, path: f}\nformat: {type: canal_json, snapshot.mode: initial}\n" + RUN,
        3,
        "Option 'snapshot.mode' belongs to a source, not to format 'canal_json'. Move it there.",
    ),
    (
        SOURCE + "sink: {type: delta, path: lake, table.include.list: dbo.a}\n" + RUN,
        2,
        "Option 'table.include.list' belongs to a source, not to sink 'delta'. Move it there.",
    ),
    (
        SOURCE + SINK + RUN + "transforms: [{column_exclude_list: a}]",
        4,
        "Option 'column_exclude_list' belongs to a source, not to transform 1. Move it there.",
    ),
    (
        SOURCE.replace("shop", "shop, xyzzy: 1") + SINK + RUN,
        1,
        "Unknown option 'xyzzy' for source 'sqlserver'. Look at the page of options for what there is.",
    ),
    # What no server has to be asked for.
    (
        SOURCE.replace("shop", "shop, port: 14x33") + SINK + RUN,
        1,
        "Option 'port' can't be '14x33': a port is a number from 1 to 65535. See: ",
    ),
    (
        SOURCE.replace("shop", "shop, port: 70000") + SINK + RUN,
        1,
        "Option 'port' can't be '70000': a port is a number from 1 to 65535. See: ",
    ),
    (
        SOURCE + "sink: {type: files, path: f}\nformat: {type: debezium_json}\n" + RUN,
        3,
        "Option 'topic_prefix' of format 'debezium_json' is missing. Set it to the server's logical name",
    ),
    (
        SOURCE
        + "sink: {type: files, path: f}\nformat: {type: debezium_json, topic.prefix: s, shape: '2.3', "
        + "time.precision.mode: isostring}\n"
        + RUN,
        3,
        "Option 'time_precision_mode' can't be 'isostring' in shape 2.3. Known there: adaptive",
    ),
    (
        SOURCE + "sink: {type: files, path: f}\nformat: {type: debezium_avro, topic.prefix: s}\n" + RUN,
        3,
        "Option 'registry' of format 'debezium_avro' is missing. Give the address of a schema registry",
    ),
    (
        SOURCE + "sink: {type: files, path: f, format: {type: qlik_avro, envelope: false}}\n" + RUN,
        2,
        "Option 'registry' of format 'qlik_avro' is missing. Give the address of a schema registry",
    ),
    (
        "source: {type: kafka, bootstrap.servers: 'k:1', topics: [a], format: {type: debezium_avro}}\n" + SINK + RUN,
        1,
        "Option 'registry' of format 'debezium_avro' is missing. Give the address of a schema registry",
    ),
    (SOURCE + "sink: {type: delta, path: state}\n" + RUN, 2, "Option 'path' is a folder in the checkpoint '"),
    (SOURCE + "sink: {type: delta, path: ./state/../state/lake/}\n" + RUN, 2, "Option 'path' is a folder in the ch"),
    (
        SOURCE + "sink: {type: delta, path: 's3a://b/state/x'}\npipeline: {name: a, checkpoint: 's3a://b/state/'}",
        2,
        "Option 'path' is a folder in the checkpoint 's3a://b/state/'. Name another one.",
    ),
]


def test_a_sink_beside_the_checkpoint_is_apart_from_it(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(SOURCE + "sink: {type: delta, path: ./state-lake}\n" + RUN)
    assert find_mistakes(file) == []


@pytest.mark.parametrize(("text", "line", "sentence"), BROKEN)
def test_what_is_wrong_in_a_file_is_one_sentence_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, sentence: str
) -> None:
    monkeypatch.setenv("NOTHING", "")
    (tmp_path / "nothing").write_text("\n")
    file = tmp_path / "p.yaml"
    file.write_text(text)
    [found] = find_mistakes(file)
    assert re.match(re.escape(f"{file}, line {line}: {sentence}"), str(found)), str(found)
