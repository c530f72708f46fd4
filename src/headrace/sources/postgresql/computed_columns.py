"""Columns that the server computes but does not send: which they are, and which transform gives their values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.publication import VIRTUAL
from headrace.sources.postgresql.refusals import identifier
from headrace.sources.signals import say_once
from headrace.sources.tables.unlogged import Unlogged

_PUBLISHES_STORED = 180000
_COMPUTE = (
    "Compute {them} by a transform of the pipeline; what the server writes otherwise than Spark's SQL (such as ::) is "
    "yours to translate: {transform}."
)


def left_out(tables: Iterable[PostgresTable], publication: str, version: int) -> Iterator[Unlogged]:
    """The tables with such columns, and how the columns get into targets all the same.

    Args:
        tables: as the catalog shows them.
        publication: the publication's name.
        version: the server's.
    """
    for table in tables:
        if not table.lacking:
            continue
        several = len(table.lacking) > 1
        names = ", ".join(f"'{name}'" for name in table.lacking)
        computed = f"Columns {names} are" if several else f"Column {names} is"
        columns = {
            name: f"cast({column.expression} as {column.type.logical.spark_type})"
            for name, column in table.lacking.items()
        }
        transform = json.dumps({"tables": [table.id.path], "computed_columns": columns}, ensure_ascii=False)
        remedy = _COMPUTE.format(them="them" if several else "it", transform=transform)
        if version >= _PUBLISHES_STORED and all(column.kind != VIRTUAL for column in table.lacking.values()):
            remedy = (
                f"Run: ALTER PUBLICATION {identifier(publication)} SET (publish_generated_columns = stored); "
                f"and read the table again. Or: {remedy}"
            )
        sentence = f"{computed} computed by the server, which does not send the values, so captured rows lack them."
        yield Unlogged(table.id.path, sentence, remedy)


def say_left_out(tables: Iterable[PostgresTable], publication: str, version: int) -> None:
    """Log them, once per process."""
    for found in left_out(tables, publication, version):
        say_once(f"Table '{found.table}': {found.sentence} {found.remedy}")
