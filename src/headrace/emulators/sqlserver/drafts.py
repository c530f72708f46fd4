"""Columns and keys as CREATE TABLE and ALTER TABLE declare them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.emulators.sqlserver.reader import StatementReader, default_text
from headrace.emulators.sqlserver.types import SqlType, check_collation


@dataclass
class ColumnDraft:
    """A column while its definition is read."""

    name: str
    type: SqlType
    nullable: bool | None = None
    identity: tuple[int, int] | None = None
    default: str | None = None
    default_name: str | None = None
    computed: str | None = None
    persisted: bool = False
    user_type: int = 0


@dataclass
class KeyDraft:
    """A PRIMARY KEY, UNIQUE constraint or index while its definition is read."""

    columns: list[str]
    primary: bool = False
    constraint: bool = True
    unique: bool = True
    clustered: bool = False
    name: str | None = None
    included: list[str] = field(default_factory=list)


def read_column(reader: StatementReader, keys: list[KeyDraft]) -> ColumnDraft:
    """Take one column definition; the keys it declares are added to the list."""
    name = reader.name()
    if reader.accept("AS"):
        draft = ColumnDraft(name, SqlType("int"), computed=reader.parenthesised())
        draft.persisted = reader.accept("PERSISTED")
        return draft
    draft = ColumnDraft(name, reader.type(), user_type=reader.alias.number if reader.alias else 0)
    if reader.alias is not None and not reader.alias.nullable:
        draft.nullable = False
    while reader.word() not in (",", ")", ""):
        constraint = reader.name() if reader.accept("CONSTRAINT") else None
        if reader.accept("NOT", "NULL"):
            draft.nullable = False
        elif reader.accept("NULL"):
            draft.nullable = True
        elif reader.accept("COLLATE"):
            collation = reader.name()
            check_collation(collation)
            draft.type = SqlType(draft.type.name, draft.type.length, collation=collation)
        elif reader.accept("IDENTITY"):
            draft.identity = (1, 1)
            if reader.accept("("):
                seed = reader.integer()
                reader.expect(",")
                draft.identity = (seed, reader.integer())
                reader.expect(")")
        elif reader.accept("DEFAULT"):
            draft.default, draft.default_name = default_text(_default(reader)), constraint
        elif reader.accept("PRIMARY KEY"):
            draft.nullable = False
            keys.append(KeyDraft([name], True, clustered=not _nonclustered(reader), name=constraint))
        elif reader.accept("UNIQUE"):
            _nonclustered(reader)
            keys.append(KeyDraft([name], name=constraint))
        elif reader.accept("WITH", "VALUES") or reader.accept("ROWGUIDCOL"):
            continue
        else:
            raise reader.unknown(f"the column option {reader.word()}")
    return draft


def _default(reader: StatementReader) -> str:
    if reader.word() == "(":
        return reader.parenthesised()
    mark = reader.mark
    if reader.word() in ("-", "+"):
        reader.next()
    reader.next()
    text = reader.text_since(mark)
    return text + reader.parenthesised() if reader.word() == "(" else text


def _nonclustered(reader: StatementReader) -> bool:
    return not reader.accept("CLUSTERED") and reader.accept("NONCLUSTERED")


def read_constraint(reader: StatementReader) -> KeyDraft:
    """Take one table constraint."""
    name = reader.name() if reader.accept("CONSTRAINT") else None
    if reader.accept("PRIMARY KEY"):
        nonclustered = _nonclustered(reader)
        return KeyDraft(reader.names(), True, clustered=not nonclustered, name=name)
    if reader.accept("UNIQUE"):
        _nonclustered(reader)
        return KeyDraft(reader.names(), name=name)
    raise reader.unknown(f"the constraint {reader.word()}")
