"""Rule: a checkpoint that is damaged or another source's is one sentence and exit code 2, whatever the command is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.databases import VERSIONS, KeptSqlServer, server_file
from tests.compat.packing import unpack
from tests.observe.checkpoints import write_batch
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import HeadraceError
from headrace.pipeline import load_pipeline
from headrace.sources.databases import Offsets
from headrace.sources.offset import Offset

SOUND = Offsets({"shop": Offset("sqlserver:shop", "00000025:00000811:0002", initial=False)}).to_text()
FOREIGN = Offsets({"shop": Offset("db2:shop", "00000025:00000811:0002", initial=False)}).to_text()


def line(text: str) -> Callable[[Path], None]:
    """The newest batch has this offset."""
    return lambda folder: write_batch(folder, 1, text)


def whole(name: str, text: str | None) -> Callable[[Path], None]:
    """A file has this text, or is gone."""
    return lambda folder: (folder / name).unlink() if text is None else (folder / name).write_text(text) and None


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a number": (line("17"), "has an offset of batch 1 that can't be read"),
    "cut": (line(SOUND[:40]), "has an offset of batch 1 that can't be read"),
    "a list": (line("[1]"), "has an offset of batch 1 that can't be read"),
    "a wrong part": (line('{"version":2,"databases":{"shop":17}}'), "has an offset of batch 1 that can't be read"),
    "a part that lacks something": (
        line('{"version":2,"databases":{"shop":{"version":2}}}'),
        "has an offset of batch 1 that can't be read",
    ),
    "a later version": (line('{"version":99,"databases":{}}'), "version 99, and Headrace"),
    "a part of a later release": (line(SOUND[:-1] + ',"later":1}'), "has 'later', which Headrace"),
    "a file of a later release": (whole("headrace-later.json", "{}"), "has 'headrace-later.json', which Headrace"),
    "a later release that was the last to run": (
        lambda folder: [
            harm(folder)
            for harm in (
                line('{"version":99,"databases":{}}'),
                whole("headrace-last-run.json", '{"release":"7.1.0"}'),
            )
        ],
        "The last run was of Headrace 7.1.0.",
    ),
    "topics": (line('{"orders":{"0":5}}'), "reads topics, but the source is 'sqlserver'"),
    "another database": (line(FOREIGN), "'db2:shop', but the source is 'sqlserver'"),
    "two sources": (lambda folder: write_batch(folder, 1, SOUND, SOUND), "of 2 sources"),
    "an empty file": (whole("offsets/1", ""), "has offsets of batch 1 that can't be read"),
    "another version of the log": (
        whole("offsets/1", f"v7\n{{}}\n{SOUND}"),
        "a later release of Spark wrote it",
    ),
    "no settings": (whole("offsets/1", f"v1\n{SOUND[:9]}\n{SOUND}"), "has offsets of batch 1 that can't be read"),
    "a file that is gone": (whole("offsets/1", None), "lacks the offsets of batch 1"),
    "the one before is gone": (whole("offsets/0", None), "lacks the offsets of batch 0"),
    "the one before is damaged": (lambda folder: write_batch(folder, 0, "17"), "has an offset of batch 0"),
    "an empty commit": (whole("commits/1", ""), "commits/1"),
    "no identity": (whole("metadata", None), "lacks its file 'metadata'"),
    "a cut identity": (whole("metadata", '{"id'), "has a file 'metadata' that can't be read"),
}
COMMANDS = (["status"], ["plan"], ["check"], ["signal", "log", "--message", "x"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    unpack(server_file(VERSIONS[0], "sqlserver"), tmp_path / "server")
    KeptSqlServer(tmp_path / "server").emulated.close()
    for number in (0, 1):
        write_batch(tmp_path / "checkpoint", number, SOUND)
    text = {
        "source": {"type": "sqlserver", "driver": "emulator", "hostname": str(tmp_path / "server"), "database": "shop"},
        "sink": {"type": "memory"},
        "pipeline": {"name": "p", "checkpoint": "./checkpoint"},
    }
    path = tmp_path / "pipeline.yaml"
    path.write_text(json.dumps(text))
    return path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_one_sentence_for_every_command(file: Path, damage: str) -> None:
    harm, sentence = DAMAGES[damage]
    harm(file.parent / "checkpoint")
    for command, *arguments in COMMANDS:
        done = CliRunner().invoke(app, [command, str(file), *arguments])
        assert (done.exit_code, sentence in " ".join(done.output.split())) == (2, True), (command, done.output)
        assert "Traceback" not in done.output and "unexpected" not in done.output
    # What run, run --once and verify begin with, before Spark is started.
    with pytest.raises(HeadraceError, match=r"checkpoint"):
        load_pipeline(file).check()


def test_a_checkpoint_of_topics_is_held_against_topics(tmp_path: Path) -> None:
    source = {"type": "kafka", "bootstrap.servers": "127.0.0.1:1", "topics": "t", "format": {"type": "debezium_json"}}
    text = {"source": source, "sink": {"type": "memory"}, "pipeline": {"name": "p", "checkpoint": "./checkpoint"}}
    (tmp_path / "pipeline.yaml").write_text(json.dumps(text))
    for offset, sentence in (
        (SOUND, "reads a database, but the source is 'kafka'"),
        ('{"t":{"0":"5"}}', "has an offset of batch 0"),
        ('{"t":17}', "has an offset of batch 0"),
        ('{"t":{"0":5}}', "has a file 'headrace-topic-ids.json' that can't be read"),
        ('{"t":{"0":5}}', "file 'headrace-topic-ids.json' has format version 2"),
    ):
        if "ids" in sentence:
            ids = '{"version": 2, "topics": {}}' if "version 2" in sentence else '{"t": '
            (tmp_path / "checkpoint" / "headrace-topic-ids.json").write_text(ids)
        write_batch(tmp_path / "checkpoint", 0, offset)
        for command in ("status", "plan"):
            done = CliRunner().invoke(app, [command, str(tmp_path / "pipeline.yaml")])
            assert (done.exit_code, sentence in " ".join(done.output.split())) == (2, True), (command, done.output)
