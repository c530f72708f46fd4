"""`headrace init`: writes a pipeline file to start from."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.failure import errors_reported, program
from headrace.cli.run import Debug


def init(
    pipeline: Annotated[Path, typer.Argument(help="The file to write; - prints it.")] = Path("pipeline.yaml"),
    source: Annotated[
        str | None,
        typer.Option(
            help="Where changes come from: postgresql, mysql (MariaDB too), sqlserver, db2, oracle, kafka. Default: "
            "sqlserver."
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(help="Where changes go: kafka, files, delta, iceberg, jdbc; can be repeated. Default: delta."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(help="The format of messages, if a sink writes or the source reads them. Default: debezium_json."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", help="An option of the source, such as -o hostname=db; can be repeated."),
    ] = None,
    password_env: Annotated[
        str, typer.Option(help="The environment variable that holds the source's password.")
    ] = "HEADRACE_PASSWORD",
    name: Annotated[
        str | None, typer.Option(help="The pipeline's name. Default: the database's, else the file's.")
    ] = None,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask/--no-ask",
            help="On a terminal, ask for what is not given; read the list of tables from the source, if its host and "
            "database are known.",
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    debug: Debug = False,
) -> None:
    """Write a commented pipeline file for a source and sinks. On a terminal it asks for what it needs, and lists the
    tables of the source."""
    with errors_reported(debug):
        from headrace.cli.questions import DEFAULT_FORMAT, Answers, asked
        from headrace.errors import OptionError
        from headrace.pipeline.new_file import new_file

        printed = str(pipeline) == "-"
        if not printed and pipeline.exists() and not force:
            raise OptionError(f"'{pipeline}' already exists.", remedy="Choose another file, or use --force.")
        given: dict[str, str] = {}
        for one in option or []:
            key, equals, value = one.partition("=")
            if not equals:
                raise OptionError(f"'{one}' is not an option.", remedy="Write -o name=value, such as -o hostname=db.")
            given[key.strip()] = value.strip()
        answers = Answers(source or "sqlserver", sink or ["delta"], format or DEFAULT_FORMAT, given)
        if ask and _on_terminal():
            answers = asked(source, sink, format, given, password_env)
        called = name or answers.of_source.get("database") or ("pipeline" if printed else pipeline.stem)
        called = name or re.sub(r"[^\w.-]+", "-", called)
        written = new_file(
            called,
            answers.source,
            answers.sinks,
            answers.format,
            answers.of_source,
            password_env,
            of_sinks=answers.of_sinks,
            ask=ask,
        )
        if printed:
            sys.stdout.write(written.text)
        else:
            try:
                pipeline.write_text(written.text, encoding="utf-8")
            except OSError as error:
                raise OptionError(f"Can't write '{pipeline}': {error.strerror}.", remedy="Check the path.") from None
        notes = list(written.notes)
        if answers.password:
            notes.append(f"Set the password before a run: export {password_env}=...")
        if not printed:
            notes = [f"Wrote {pipeline}.", *notes, f"Next: {program('headrace')} check {shlex.quote(str(pipeline))}"]
        sys.stderr.write("".join(f"{note}\n" for note in notes))


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
