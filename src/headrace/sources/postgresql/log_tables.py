"""Captured tables as the log shows them."""

from __future__ import annotations

from dataclasses import replace

from headrace.changes import Column, TableId, TableSchema
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.relation import Relation
from headrace.sources.postgresql.types import NativeType, TypeCatalog


def table_of(relation: Relation, known: PostgresTable, types: TypeCatalog, database: str) -> PostgresTable:
    """The table whose rows follow: names and types as the log has them, the rest as the catalog has it.

    Args:
        relation: what the log says.
        known: what the catalog says, which may be newer.
        types: what is known of types.
        database: the database's name.
    """
    listed = {column.name: column for column in known.schema.columns}
    found: list[tuple[Column, NativeType]] = []
    for column in relation.columns:
        native = types.resolve(column.oid, column.typmod)
        said = listed.get(column.name)
        if said is None and column.name in known.columns:
            continue
        made = Column(column.name, len(found) + 1, native.logical, native.name, large=native.large)
        if said is not None and said.native_type == made.native_type:
            made = replace(said, position=made.position, logical=made.logical)
        found.append((made, native))
    columns, natives = tuple(column for column, _ in found), tuple(native for _, native in found)
    names = {column.name for column in columns}
    key = known.schema.key if names.issuperset(known.schema.key) else ()
    schema = TableSchema(TableId(database, relation.schema, relation.name), columns, key)
    return replace(known, schema=schema, natives=natives, identity=relation.identity)
