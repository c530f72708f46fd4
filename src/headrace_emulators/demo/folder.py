"""The folder of a demo: whose it is, the pipelines in it, and what to try with it afterwards."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import yaml

from headrace.cli.failure import program
from headrace.errors import OptionError
from headrace_emulators.demo.real_server import RealServer

MARK = ".headrace-demo"
SERVER = "server"
MESSAGES = "messages"
LAKE = "lake"
BROKER = "kafka"
_HEADER = "# Written by headrace demo; a pipeline like any other. Relative paths are relative to this file.\n"


def make_folder(given: Path | None) -> Path:
    """The folder to use, made unless it exists.

    Args:
        given: the user's wish; by default the first of `headrace-demo`, `headrace-demo-2`, ... that does not exist yet.

    Raises:
        OptionError: the folder holds something already, or can't be made.
    """
    folder = given if given is not None else _free(Path("headrace-demo"))
    try:
        if folder.exists() and any(folder.iterdir()):
            kind = "an earlier demo" if (folder / MARK).exists() else "something else"
            raise OptionError(f"The folder '{folder}' holds {kind}.", remedy="Name an empty or a new one with --dir.")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
    except OSError as error:
        raise OptionError(
            f"The folder '{folder}' can't be used: {error.strerror}.", remedy="Name another one with --dir."
        ) from error
    return folder


def write_pipelines(
    folder: Path, database: str, bootstrap: str | None, kind: str = "sqlserver", server: RealServer | None = None
) -> list[Path]:
    """Write the demo's pipeline, or with Kafka (its address in `bootstrap`) the one into it and the one out of it."""
    source: dict[str, object] = {
        "type": kind,
        "driver": "emulator",
        "hostname": str((folder / SERVER).absolute()),
        "database": database,
    }
    if kind == "db2":
        # The emulated server can't tell its time zone.
        source |= {"driver": "db2-emulator", "server.timezone": "UTC"}
    if kind == "oracle":
        source |= {
            "driver": "oracle-emulator",
            "database": database.upper(),
            "lob_enabled": True,
            "rac_nodes": ["instance:2"],
        }
    if server is not None:
        source = server.options(database)
    format = {"type": "debezium_json", "topic.prefix": database}
    delta = {"type": "delta", "path": f"./{LAKE}"}
    if bootstrap is None:
        sinks = [{"type": "files", "path": f"./{MESSAGES}"}, delta]
        return [_write(folder, "pipeline", database, {"source": source, "format": format, "sinks": sinks})]
    into = {
        "source": source,
        "format": {**format, "schemas.enable": True},
        "sink": {"type": "kafka", "bootstrap.servers": bootstrap},
    }
    out = {
        "source": {
            "type": "kafka",
            "bootstrap.servers": bootstrap,
            # Not the topic that carries schema changes, which is named like the prefix.
            "topics.pattern": rf"{database}\..*",
            "format": {"type": "debezium_json"},
        },
        "sink": delta,
    }
    return [_write(folder, "to-kafka", f"{database}-in", into), _write(folder, "to-lake", f"{database}-out", out)]


def next_commands(
    folder: Path, pipelines: list[Path], source_file: Path, table: str, real: RealServer | None = None
) -> list[tuple[str, str]]:
    """What a user may try now: a word and a command, which works as it is."""
    lake = folder / LAKE
    schema, _, name = table.partition(".")
    # In double quotes, which need no quoting in the shell's single ones.
    path = json.dumps(str(lake / schema / name), ensure_ascii=False)
    read = (
        f"from deltalake import DeltaTable, QueryBuilder; t = QueryBuilder().register('t', DeltaTable({path})); "
        "print(t.execute('select * from t limit 10').read_all())"
    )
    commands = []
    message = next((file for file in sorted((folder / MESSAGES).rglob("part-*")) if file.stat().st_size), None)
    if message is not None:
        commands.append(("a message", f"head -n 1 {shlex.quote(str(message))}"))
    commands.append(("the mirror", f"{program('python')} -c {shlex.quote(read)}"))
    commands.append(
        (
            "compare again",
            f"{program('python')} -m headrace_emulators.demo.comparison "
            f"{shlex.quote(str(source_file))} {shlex.quote(str(lake))}",
        )
    )
    if real is not None:
        log = shlex.quote(str(real.folder / "server.log"))
        commands.append(("start the server again, to change something", f"{shlex.join(real.command)} >> {log} 2>&1 &"))
    if len(pipelines) == 1:
        commands.append(("go on", f"{program('headrace')} run {shlex.quote(str(pipelines[0]))} --once"))
    return commands


def _free(wanted: Path) -> Path:
    number = 1
    folder = wanted
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def _write(folder: Path, file: str, name: str, sections: dict[str, object]) -> Path:
    run = {"name": name, "checkpoint": f"./checkpoints/{name}", "trigger": "1s"}
    path = folder / f"{file}.yaml"
    text = yaml.safe_dump({**sections, "pipeline": run}, sort_keys=False, allow_unicode=True)
    path.write_text(_HEADER + text, encoding="utf-8")
    return path
