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
]


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
