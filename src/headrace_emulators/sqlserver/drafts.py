"""Columns and keys as CREATE TABLE and ALTER TABLE declare them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_emulators.sqlserver.reader import StatementReader, default_text
from headrace_emulators.sqlserver.types import SqlType, check_collation


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


@dataclass
class RuleDraft:
    """A CHECK or a FOREIGN KEY while its definition is read.

    Args:
        condition: of a CHECK; empty for a FOREIGN KEY.
        columns: that refer to another table.
        target: schema and name of that table.
        referenced: its columns; its primary key when empty.
        actions: what happens when a row there changes, as `ON DELETE CASCADE`.
    """

    condition: str = ""
    columns: list[str] = field(default_factory=list)
    target: tuple[str, str] = ("", "")
    referenced: list[str] = field(default_factory=list)
    actions: str = ""


_RULES = ("CHECK", "FOREIGN KEY", "REFERENCES")


def begins_rule(reader: StatementReader) -> bool:
    """Whether a CHECK or FOREIGN KEY comes, with or without a name."""
    return reader.word() in _RULES or (reader.word() == "CONSTRAINT" and reader.word(2) in _RULES)


def read_rule(reader: StatementReader, column: str = "") -> RuleDraft:
    """Take one CHECK or FOREIGN KEY; of a column when its name is given."""
    if reader.accept("CONSTRAINT"):
        reader.name()
    if reader.accept("CHECK"):
        return RuleDraft(condition=reader.parenthesised())
    columns = [column]
    if reader.accept("FOREIGN KEY") and not column:
        columns = reader.names()
    reader.expect("REFERENCES")
    _, schema, name = reader.path()
    draft = RuleDraft(columns=columns, target=(schema, name))
    if reader.word() == "(":
        draft.referenced = reader.names()
    while reader.accept("ON"):
        event = reader.next().text.upper()
        action = reader.next().text.upper()
        if action in ("NO", "SET"):
            action = f"{action} {reader.next().text.upper()}"
        draft.actions += f" ON {event} {action}"
    return draft


def read_column(reader: StatementReader, keys: list[KeyDraft], rules: list[RuleDraft] | None = None) -> ColumnDraft:
    """Take one column definition; the keys and rules it declares are added to the lists."""
    name = reader.name()
    if reader.accept("AS"):
        draft = ColumnDraft(name, SqlType("int"), computed=reader.parenthesised())
        draft.persisted = reader.accept("PERSISTED")
        return draft
    draft = ColumnDraft(name, reader.type(), user_type=reader.alias.number if reader.alias else 0)
    if reader.alias is not None and not reader.alias.nullable:
        draft.nullable = False
    while reader.word() not in (",", ")", ""):
        if rules is not None and begins_rule(reader):
            rules.append(read_rule(reader, name))
            continue
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
    name = reader.name() if reader.accept("CONSTRAINT") else None
    if reader.accept("PRIMARY KEY"):
        nonclustered = _nonclustered(reader)
        return KeyDraft(reader.names(), True, clustered=not nonclustered, name=name)
    if reader.accept("UNIQUE"):
        _nonclustered(reader)
        return KeyDraft(reader.names(), name=name)
    raise reader.unknown(f"the constraint {reader.word()}")
