"""Rule: what is wrong in a pipeline file is found before a run, as one sentence with its line and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import __version__
from headrace.pipeline.model import find_mistakes

MEMORY = "{type: memory}"
ORDER = ("source", "sink", "format", "pipeline", "transforms")


def source(options: str) -> str:
    """A source whose database is the first of the options."""
    return f"{{type: sqlserver, hostname: there, driver: emulator, database: {options}}}"


IN_SOURCE = {
    "''": "Option 'database' is empty. Set it: The database to capture, or several: a list, or with commas between.",
    "'${env:NOTHING}'": "The environment variable NOTHING is empty. Put the value into it, or take the reference out.",
    "shop, password: '${file:nothing}'": "The file 'nothing' is empty. Put the value into it, or take the reference "
    "out.",
    "shop, user: '${env:USER'": "The reference '${env:USER' has no closing brace. Write ${env:NAME}.",
    "shop, tables: []": "Option 'tables' is empty. Give it a value, or leave the option out.",
    "shop, tables: [dbo.a, '']": "A part of option 'tables' is empty. Fill it in or remove it.",
    # Options that stand in the wrong place.
    "shop, topic.prefix: s": "Option 'topic.prefix' belongs to a format, not to source 'sqlserver'. Move it there.",
    "shop, tombstones_on_delete: false": "Option 'tombstones_on_delete' belongs to a format, not to source "
    "'sqlserver'. Move it there.",
    "shop, kafka.acks: all": "Option 'kafka.acks' belongs to a sink, not to source 'sqlserver'. Move it there.",
    "shop, xyzzy: 1": "Unknown option 'xyzzy' for source 'sqlserver'. "
    f"See the options reference of Headrace {__version__} for the names.",
    # What no server has to be asked for.
    "shop, port: 14x33": "Option 'port' can't be '14x33': a port is a number from 1 to 65535. See: ",
    "shop, port: 70000": "Option 'port' can't be '70000': a port is a number from 1 to 65535. See: ",
}
FILES = {"sink": "{type: files, path: f}"}
NO_REGISTRY = "Option 'registry' of format '{}' is missing. Set it to the address of a schema registry"
BROKEN: list[tuple[dict[str, str], str]] = [
    # The first section is the one that is wrong.
    *(({"source": source(options)}, sentence) for options, sentence in IN_SOURCE.items()),
    ({"sink": "{type: files, path: ' '}"}, "Option 'path' is empty. Set it: "),
    ({"sink": "{type: delta, path: ' '}"}, "Option 'path' is empty. Give it a value, or leave the option out."),
    (
        {"format": "{type: canal_json, topic: ''}"},
        "Option 'topic' is empty. Give it a value, or leave the option out.",
    ),
    ({"transforms": "[{filter: ''}]"}, "Option 'filter' is empty. Give it a value, or leave the option out."),
    (
        {"pipeline": "{name: ' ', checkpoint: ./state}"},
        "Key 'pipeline.name' is empty. Name the pipeline; sinks remember who wrote to them by it.",
    ),
    (
        {"pipeline": "{name: sales, checkpoint: ''}"},
        "Key 'pipeline.checkpoint' is empty. Name a folder or URL where the state is kept.",
    ),
    (
        {"format": "{type: canal_json, snapshot.mode: initial}", **FILES},
        "Option 'snapshot.mode' belongs to a source, not to format 'canal_json'. Move it there.",
    ),
    (
        {"sink": "{type: delta, path: lake, table.include.list: dbo.a}"},
        "Option 'table.include.list' belongs to a source, not to sink 'delta'. Move it there.",
    ),
    (
        {"transforms": "[{column_exclude_list: a}]"},
        "Option 'column_exclude_list' belongs to a source, not to transform 1. Move it there.",
    ),
    (
        {"format": "{type: debezium_json}", **FILES},
        "Option 'topic_prefix' of format 'debezium_json' is missing. Set it to the server's logical name",
    ),
    (
        {
            "format": "{type: debezium_json, topic.prefix: s, shape: '2.3', time.precision.mode: isostring}",
            **FILES,
        },
        "Option 'time_precision_mode' can't be 'isostring' in shape 2.3. Known there: adaptive",
    ),
    ({"format": "{type: debezium_avro, topic.prefix: s}", **FILES}, NO_REGISTRY.format("debezium_avro")),
    (
        {"sink": "{type: files, path: f, format: {type: qlik_avro, envelope: false}}"},
        NO_REGISTRY.format("qlik_avro"),
    ),
    (
        {"source": "{type: kafka, bootstrap.servers: 'k:1', topics: [a], format: {type: debezium_avro}}"},
        NO_REGISTRY.format("debezium_avro"),
    ),
    ({"sink": "{type: delta, path: state}"}, "Option 'path' is a folder in the checkpoint '"),
    ({"sink": "{type: delta, path: ./state/../state/lake/}"}, "Option 'path' is a folder in the checkpoint '"),
    (
        {"sink": "{type: delta, path: 's3a://b/state/x'}", "pipeline": "{name: a, checkpoint: 's3a://b/state/'}"},
        "Option 'path' is a folder in the checkpoint 's3a://b/state/'. Name another one.",
    ),
]


def written(folder: Path, sections: dict[str, str]) -> tuple[Path, list[str]]:
    """A file of the sections, one in each line, and their names in its order."""
    given = {"source": source("shop"), "sink": MEMORY, "pipeline": "{name: sales, checkpoint: ./state}", **sections}
    order = [name for name in ORDER if name in given]
    file = folder / "p.yaml"
    file.write_text("".join(f"{name}: {given[name]}\n" for name in order))
    return file, order


def test_a_sink_beside_the_checkpoint_is_apart_from_it(tmp_path: Path) -> None:
    assert find_mistakes(written(tmp_path, {"sink": "{type: delta, path: ./state-lake}"})[0]) == []


@pytest.mark.parametrize(("sections", "sentence"), BROKEN)
def test_what_is_wrong_in_a_file_is_one_sentence_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, str], sentence: str
) -> None:
    monkeypatch.setenv("NOTHING", "")
    (tmp_path / "nothing").write_text("\n")
    file, order = written(tmp_path, sections)
    line = order.index(next(iter(sections))) + 1
    [found] = find_mistakes(file)
    assert re.match(re.escape(f"{file}, line {line}: {sentence}"), str(found)), str(found)
