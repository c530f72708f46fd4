"""`headrace tables`: the structures of the captured tables, as a reader of their messages takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from headrace.cli.failure import errors_reported
from headrace.cli.run import Debug, session_for

if TYPE_CHECKING:
    from headrace.changes import TableSchema


def tables(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Print the captured tables with their columns, as the option `schema` of a format takes them.

    For a pipeline that reads from Kafka what this one writes in a format without types. Tables have the names and
    columns that the first sink of messages gets. Asks the source; writes nothing.
    """
    with errors_reported(debug) as shown:
        from headrace.pipeline import load_pipeline

        loaded = load_pipeline(pipeline)
        shown.hide = loaded.hide
        written = loaded.written_tables(lambda: session_for([loaded], debug, short_lived=True))
        listed = {"schema": [_described(schema) for schema in written]}
        text = yaml.dump(listed, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=200)
        typer.echo(loaded.hide(text), nl=False)


class _Dumper(yaml.SafeDumper):
    """Writes names, and each column, on one line."""


class _Line(dict[str, Any]):
    pass


class _Names(list[str]):
    pass


_Dumper.add_representer(
    _Line, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)
)
_Dumper.add_representer(
    _Names, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def _described(schema: TableSchema) -> dict[str, Any]:
    whole = schema.to_json()
    keys = [name for name in ("primaryKeyColumnNames", "messageKeyColumnNames") if name in whole]
    return {
        "tableId": _Names(whole["tableId"]),
        **{name: _Names(whole[name]) for name in keys},
        "columns": [_Line(_parts(column)) for column in whole["columns"]],
    }


def _parts(column: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, column[name]) for name in ("name", "position", "logicalType", "optional"))
