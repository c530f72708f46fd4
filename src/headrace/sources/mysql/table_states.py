"""How a table looks after each statement that altered it, and whether the statements can have changed its rows.

Between two looks at the catalog only the statements of the log say what a table was. Each column is followed through
them: one that no statement declared again is as the catalog showed it before, and one that no later statement declared
is as the catalog shows it now. What can't be followed is not known, and nothing is proven of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import cached_property

from headrace.changes import Column
from headrace.sources.mysql.alterations import (
    Action,
    Add,
    AddPrimaryKey,
    Change,
    Convert,
    Definition,
    Drop,
    DropPrimaryKey,
    Engine,
    Rename,
    SetDefault,
    Unproven,
    actions_of,
)
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.catalog import constant_default
from headrace.sources.mysql.declared_columns import declared_column, lacks_charset
from headrace.sources.mysql.statements import Meaning, Named, Statement, is_tools_swap
from headrace.sources.mysql.types import INTEGERS, WITH_CHARSET, NativeType, keeps_values
from headrace.sources.tables.rewrites import Rewrite

_CHARSET = re.compile(r"charset|character\s+set|collat|national|nchar|nvarchar|ascii|unicode|byte", re.IGNORECASE)
"""What may say of which character set a column is, or all that follow."""
_CONSTANT_KINDS = frozenset((*INTEGERS, "decimal", "char", "varchar", "enum"))


@dataclass(frozen=True)
class TableStatement:
    """A statement of the log that concerns captured tables.

    Args:
        position: where its transaction begins, as `BinlogPosition.text`.
        statement: what it means; each of its tables has its database.
        text: all of it.
    """

    position: str
    statement: Statement
    text: str

    def concerns(self, path: str) -> bool:
        return any(_is_named(named, path) for named in self.statement.tables)


@dataclass(frozen=True)
class TableStates:
    """What statements made of one table.

    Args:
        states: how it is behind each statement; null where that is not known.
        rewrite: why rows may have changed that the log does not have; None where it is proven that none has.
        is_replaced: whether all of its rows may be others: it was dropped, or another table came in its place.
        dropped: the names of columns that went away and did not come back.
        fits: whether the statements lead to what the catalog shows, where it shows it.
    """

    states: tuple[MysqlTable | None, ...]
    rewrite: Rewrite | None = None
    is_replaced: bool = False
    dropped: tuple[str, ...] = ()
    fits: bool = True


@dataclass
class _Slot:
    """A column as statements have it.

    Args:
        name: what it is called.
        born: the name that it had before the first statement; None for one that was added.
        declared: what statements declared it as, in order; null for what is not known.
    """

    name: str
    born: str | None = None
    declared: list[Definition | None] = field(default_factory=list)


@dataclass(frozen=True)
class _ColumnState:
    """A slot after a statement: its name and how often it was declared until then."""

    slot: _Slot
    name: str
    version: int


def states_of(
    path: str,
    before: MysqlTable | None,
    statements: Sequence[TableStatement],
    after: MysqlTable | None,
    *,
    proven: int | None = None,
    dropped: Collection[str] = (),
) -> TableStates:
    """Follow a table through statements.

    Args:
        path: the table, `database.table`.
        before: how it is in front of the first statement; None where that is not known.
        statements: those that concern it, in the order of the log.
        after: how it is behind the last one; None where that is not known.
        proven: how many of the statements are to be proven harmless; None for all.
        dropped: the names of columns that went away before, which targets may have kept.
    """
    followed = _Followed(path, before, statements, after, dropped)
    return followed.result(len(statements) if proven is None else proven)


class _Followed:
    def __init__(
        self,
        path: str,
        before: MysqlTable | None,
        statements: Sequence[TableStatement],
        after: MysqlTable | None,
        dropped: Collection[str],
    ) -> None:
        self._dropped = tuple(dropped)
        self._path, self._before, self._after = path, before, after
        self._statements = statements
        self._actions: list[tuple[Action, ...]] = []
        self._reasons: list[list[str]] = []
        self._unknown: set[int] = set()
        """The statements after which columns are not those from before."""
        self._columns_after: list[list[_ColumnState]] = []
        self.replaced = False
        slots = [_Slot(column.name, column.name) for column in before.schema.columns] if before else []
        if before is None:
            self._unknown.add(-1)
        self._first = [_ColumnState(slot, slot.name, 0) for slot in slots]
        for number, statement in enumerate(statements):
            slots = self._follow(number, statement, slots)
            self._columns_after.append([_ColumnState(slot, slot.name, len(slot.declared)) for slot in slots])
        self._chain = self._fits()

    def result(self, proven: int) -> TableStates:
        states = tuple(self._state(number) for number in range(len(self._statements)))
        reasons = [reason for number in range(proven) for reason in self._unproven(number)]
        reasons += self._taken_names(proven)
        if self._after is not None and not self._chain and not reasons and self._moves_any(proven):
            reasons.append("the statements that altered it do not lead to the columns that it has")
        constants = None if reasons else self._constants(proven)
        fits = self._chain or self._after is None or not self._moves_any(len(self._statements))
        rewrite = None
        if constants != {}:
            reason = reasons[0] if reasons else self._default_reason(proven)
            rewrite = Rewrite(self._path, reason, constants or {})
        return TableStates(states, rewrite, self.replaced, self._gone(proven), fits)

    def _moves_any(self, proven: int) -> bool:
        return any(self._moves(number) for number in range(proven))

    # Following.

    def _follow(self, number: int, one: TableStatement, slots: list[_Slot]) -> list[_Slot]:
        """The columns after a statement; what it does not explain is remembered."""
        reasons: list[str] = []
        self._reasons.append(reasons)
        self._actions.append(())
        statement, first = one.statement, one.statement.words.partition(" ")[0].upper()
        origin = origin_of(self._path, statement)
        if origin != self._path:
            self._unknown.add(number)
            self.replaced = True
            reasons.append(f"table '{origin}' came in its place")
            return slots
        if any(f"{old.database}.{old.name}" == self._path for old, _ in statement.renamed) and not any(
            f"{new.database}.{new.name}" == self._path for _, new in statement.renamed
        ):
            self._unknown.add(number)
            self.replaced = True
            reasons.append("it got another name")
            return slots
        if not _is_named(statement.tables[0], self._path) and first == "ALTER":
            reasons.append(f"its rows were exchanged with those of a partition ('{statement.words}')")
            return slots
        actions = actions_of(one.text)
        if actions is None and statement.renamed:
            return slots
        if actions is None:
            self._unknown.add(number)
            if statement.meaning is Meaning.UNLOGGED_ROWS or first != "CREATE":
                self.replaced = True
                reasons.append(f"'{statement.words}' made or dropped it")
            return slots
        self._actions[number] = actions
        slots = list(slots)
        # The clauses of a statement speak of the names before it.
        names = {slot.name.casefold(): slot for slot in slots}
        for action in actions:
            if not self._acted(action, slots, names, reasons):
                self._unknown.add(number)
        return slots

    def _acted(self, action: Action, slots: list[_Slot], names: Mapping[str, _Slot], reasons: list[str]) -> bool:
        """Whether an action is understood, which was done to the columns then."""
        if isinstance(action, Unproven):
            reasons.append(f"the statement has {action.words or 'a clause that is not understood'}")
            # Partitions and IGNORE leave the columns as they are.
            return action.words.split(" ")[0].upper() in _KEEPING_COLUMNS
        if isinstance(action, Add):
            if action.name.casefold() in {slot.name.casefold() for slot in slots}:
                # IF NOT EXISTS, or one that this statement renames or drops.
                old = names.get(action.name.casefold())
                if old is not None and old in slots and old.name.casefold() == action.name.casefold():
                    return True
            self._put(_Slot(action.name, None, [action.definition]), action.after, slots)
            return True
        if isinstance(action, Drop):
            slot = names.get(action.name.casefold())
            if slot is not None and slot in slots:
                slots.remove(slot)
            return True
        if isinstance(action, Rename | Change):
            slot = names.get(action.name.casefold())
            if slot is None or slot not in slots:
                # It was not captured, and may be under its new name.
                if self._before is not None and (self._after is None or _column_of(self._after, action.to) is not None):
                    reasons.append(f"column '{action.to}' was not captured before")
                return True
            slot.name = action.to
            if isinstance(action, Change):
                slot.declared.append(action.definition)
                if action.after is not None:
                    slots.remove(slot)
                    self._put(slot, action.after, slots)
            return True
        if isinstance(action, AddPrimaryKey):
            for name in action.columns:
                slot = names.get(name.casefold())
                if slot is not None:
                    slot.declared.append(None)
            return True
        if isinstance(action, Convert):
            for slot in slots:
                if self._may_be_text(slot):
                    slot.declared.append(None)
        return True

    def _may_be_text(self, slot: _Slot) -> bool:
        """Whether a column may have a character set."""
        if slot.declared:
            kind = re.split(r"[( ]", slot.declared[-1].type)[0] if slot.declared[-1] is not None else ""
        else:
            column = _column_of(self._before, slot.born) if self._before is not None and slot.born else None
            kind = "" if column is None else column[1].kind
        return kind in ("", "json") or kind in WITH_CHARSET

    def _put(self, slot: _Slot, after: str | None, slots: list[_Slot]) -> None:
        position = len(slots) if after is None else 0
        if after:
            # One that is not captured has no position here.
            position = next((n for n, other in enumerate(slots, 1) if _same(other.name, after)), len(slots))
        slots.insert(position, slot)

    # States.

    def _fits(self) -> bool:
        """Whether the columns that the statements lead to are those that the catalog shows after the last one."""
        if self._after is None or not self._columns_after or self._is_unknown(len(self._columns_after) - 1):
            return False
        names = {column.name.casefold() for column in self._after.schema.columns}
        names_after = {state.name.casefold() for state in self._columns_after[-1]}
        left_out = [state for state in self._columns_after[-1] if state.name.casefold() not in names]
        # What is added or renamed may be left out by the options.
        return names <= names_after and all(
            state.slot.born is None or state.name != state.slot.born for state in left_out
        )

    def _is_unknown(self, number: int) -> bool:
        return any(n <= number for n in self._unknown)

    def _state(self, number: int) -> MysqlTable | None:
        if number == len(self._statements) - 1 and self._after is not None:
            return self._after
        if self._changes_nothing_after(number) and self._after is not None:
            return self._after
        if self._before is None or self._is_unknown(number):
            return None
        if number < 0 or self._changes_nothing_before(number):
            return self._before
        described: list[tuple[Column, NativeType]] = []
        for state in self._columns_after[number]:
            if self._chain and self._last_name(state.slot) is not None and self._of_after(state.slot) is None:
                # The options leave it out.
                continue
            column = self._resolved(state)
            if column is None:
                return None
            described.append(column)
        columns = tuple(replace(column, position=position) for position, (column, _) in enumerate(described, 1))
        key = self._key(number)
        if key is None:
            return None
        schema = replace(self._before.schema, columns=columns, key=key, primary_key=None)
        if self._before.schema.primary_key is not None:
            schema = replace(schema, primary_key=key)
        natives = tuple(native for _, native in described)
        chunk_key = key if self._before.chunk_key == self._before.schema.key else ()
        return replace(self._before, schema=schema, natives=natives, chunk_key=chunk_key, structure="")

    def _changes_nothing_after(self, number: int) -> bool:
        """Whether no later statement changes columns."""
        return not any(n > number and (n in self._unknown or self._moves(n)) for n in range(len(self._statements)))

    def _changes_nothing_before(self, number: int) -> bool:
        return not any(n in self._unknown or self._moves(n) for n in range(number + 1))

    def _moves(self, number: int) -> bool:
        """Whether a statement changes columns, or which are the key."""
        moving = (Add, Drop, Rename, Change, AddPrimaryKey, DropPrimaryKey, Convert)
        return any(isinstance(action, moving) for action in self._actions[number])

    def _key(self, number: int) -> tuple[str, ...] | None:
        """The names of the key's columns after a statement; None where nothing says which they were."""
        after = self._columns_after[number]
        if not any(self._moves_key(n) for n in range(number + 1)) and self._before is not None:
            names = [next((s.name for s in after if s.slot.born == name), None) for name in self._before.schema.key]
        elif not any(self._moves_key(n) for n in range(number + 1, len(self._statements))) and self._chain:
            assert self._after is not None
            last = {state.name: state.slot for state in self._columns_after[-1]}
            slots = [last.get(name) for name in self._after.schema.key]
            names = [next((s.name for s in after if s.slot is slot), None) for slot in slots]
        else:
            return None
        key = [name for name in names if name is not None]
        return tuple(key) if len(key) == len(names) else None

    def _moves_key(self, number: int) -> bool:
        return any(
            isinstance(action, AddPrimaryKey | DropPrimaryKey)
            or (isinstance(action, Add | Change) and action.definition.in_key)
            for action in self._actions[number]
        )

    def _last_name(self, slot: _Slot) -> str | None:
        return next((state.name for state in self._columns_after[-1] if state.slot is slot), None)

    def _of_after(self, slot: _Slot) -> tuple[Column, NativeType] | None:
        """A column as the catalog shows it after the last statement."""
        if not self._chain or self._after is None:
            return None
        name = self._last_name(slot)
        return None if name is None else _column_of(self._after, name)

    def _resolved(self, state: _ColumnState) -> tuple[Column, NativeType] | None:
        """A column after a statement; None where nothing says what it was."""
        resolved = None
        if state.version == len(state.slot.declared):
            resolved = self._of_after(state.slot)
        if resolved is None and state.version == 0 and state.slot.born is not None and self._before is not None:
            resolved = _column_of(self._before, state.slot.born)
        if resolved is None and state.version:
            resolved = declared_column(state.name, state.slot.declared[state.version - 1], self._default_charset)
        return None if resolved is None else (replace(resolved[0], name=state.name), resolved[1])

    @cached_property
    def _default_charset(self) -> str | None:
        """The character set of columns for which the statements name none; None where nothing shows it."""
        if any(_CHARSET.search(statement.text) for statement in self._statements):
            return None
        without = [
            state.slot
            for state in self._columns_after[-1]
            if state.slot.declared and lacks_charset(state.slot.declared[-1])
        ]
        charsets = {column[1].charset for slot in without if (column := self._of_after(slot)) is not None}
        return charsets.pop() if len(charsets) == 1 else None

    # Proofs.

    def _unproven(self, number: int) -> list[str]:
        """Why a statement may have changed rows."""
        reasons = list(self._reasons[number])
        statement = self._statements[number].statement
        if origin_of(self._path, statement) != self._path and self._is_equal_swap(statement):
            reasons = []
        if self._is_unknown(number - 1) and self._moves(number) and not reasons:
            reasons.append("it was altered, and how it was before is not known")
        if self._is_unknown(number) or reasons:
            return reasons
        after = {id(state.slot): state for state in self._columns_after[number]}
        in_front = {id(state.slot): state for state in (self._columns_after[number - 1] if number else self._first)}
        for action in self._actions[number]:
            reason = self._harm(action, in_front, after)
            if reason is not None:
                reasons.append(reason)
        return reasons

    def _is_equal_swap(self, statement: Statement) -> bool:
        """Whether a tool for schema changes put a copy in a table's place that has the same columns and keys."""
        before, after = self._before, self._after
        if len(self._statements) != 1 or before is None or after is None or not is_tools_swap(statement.renamed):
            return False
        return bool(before.structure) and before.structure == after.structure

    def _harm(
        self, action: Action, in_front: Mapping[int, _ColumnState], after: Mapping[int, _ColumnState]
    ) -> str | None:
        """What an action may have done to rows; None where it is proven that it did nothing to them."""
        if isinstance(action, Engine):
            same = self._before is not None and self._before.engine == action.name
            return None if same else f"it got the engine {action.name}"
        if isinstance(action, Change):
            return self._changed(action, in_front, after)
        if isinstance(action, Convert):
            for key, state in in_front.items():
                if key in after and not self._is_kept(state, after[key]):
                    return f"column '{state.name}' got another character set"
        if isinstance(action, AddPrimaryKey):
            wanted = {name.casefold() for name in action.columns}
            for state in in_front.values():
                column = self._resolved(state)
                if state.name.casefold() in wanted and (column is None or column[0].nullable):
                    return f"column '{state.name}' may have been NULL, and is in the primary key now"
        return None

    def _changed(
        self, action: Change, in_front: Mapping[int, _ColumnState], after: Mapping[int, _ColumnState]
    ) -> str | None:
        pairs = [(state, after.get(key)) for key, state in in_front.items() if _same(state.name, action.name)]
        if not pairs or pairs[0][1] is None or self._is_gone(pairs[0][0].slot):
            return None
        old, new = pairs[0]
        assert new is not None
        if action.definition.generated:
            return f"column '{action.to}' is computed"
        return None if self._is_kept(old, new, action.definition) else f"column '{action.to}' was declared again"

    def _is_gone(self, slot: _Slot) -> bool:
        """Whether a column is not there, or not captured, after the last statement."""
        if self._last_name(slot) is None:
            return True
        return self._chain and self._of_after(slot) is None

    def _is_kept(self, old: _ColumnState, new: _ColumnState, declared: Definition | None = None) -> bool:
        if self._is_gone(old.slot):
            return True
        before, after = self._resolved(old), self._resolved(new)
        if before is None or after is None:
            return False
        (was, had), (now, has) = before, after
        if was.generated or now.generated or (now.identity and not was.identity):
            return False
        if was.nullable and not now.nullable:
            return False
        if declared is not None and was.nullable and has.kind == "timestamp" and declared.nullable is None:
            return False
        return keeps_values(had, has)

    def _taken_names(self, proven: int) -> list[str]:
        """Columns that have the name that another one had in front of the statements."""
        if not proven or self._is_unknown(proven - 1):
            return []
        before: dict[str, _Slot | None] = {name.casefold(): None for name in self._dropped}
        before |= {state.name.casefold(): state.slot for state in self._first}
        return [
            f"column '{state.name}' is another one than before"
            for state in self._columns_after[proven - 1]
            if before.get(state.name.casefold(), state.slot) is not state.slot and not self._is_gone(state.slot)
        ]

    def _gone(self, proven: int) -> tuple[str, ...]:
        """The names that are no column's any more after the statements to be proven."""
        if not proven or self._is_unknown(proven - 1):
            return ()
        now = {state.name.casefold() for state in self._columns_after[proven - 1]}
        names = dict.fromkeys((*self._dropped, *(state.name for state in self._first)))
        return tuple(name for name in names if name.casefold() not in now)

    # Columns that are new.

    def _added(self, proven: int) -> list[_ColumnState]:
        """The columns that statements added and that are still there, and captured."""
        if not proven or self._is_unknown(proven - 1):
            return []
        return [
            state
            for state in self._columns_after[proven - 1]
            if state.slot.born is None and not self._is_gone(state.slot)
        ]

    def _default_reason(self, proven: int) -> str:
        name = next((state.name for state in self._added(proven) if not self._is_null(state)), "")
        return f"column '{name}' was added with values"

    def _is_null(self, state: _ColumnState) -> bool:
        """Whether a column that was added is NULL in every row from before."""
        first, column = state.slot.declared[0], self._resolved(state)
        if first is None or first.generated or first.computed or first.identity or first.in_key:
            return False
        if first.nullable is False or first.default not in (None, "NULL") or len(state.slot.declared) > 1:
            return False
        if column is None:
            return not first.type.startswith("timestamp") or first.nullable is True
        return column[0].nullable and not column[0].generated and not column[0].identity

    def _constants(self, proven: int) -> dict[str, str | None] | None:
        """The values of columns that were added and are not NULL; None where one of them is not known."""
        constants: dict[str, str | None] = {}
        for state in self._added(proven):
            if self._is_null(state):
                continue
            value = self._constant(state)
            if value is None:
                return None
            constants[state.name] = value
        return constants

    def _constant(self, state: _ColumnState) -> str | None:
        """The one value that a column has in every row from before; None where it is not known."""
        first, column = state.slot.declared[0], self._of_after(state.slot)
        if first is None or column is None or len(state.slot.declared) > 1 or state.version > 1:
            return None
        if first.default is None or first.generated or first.identity or first.in_key or column[0].generated:
            return None
        shown, native = column[0].default, column[1]
        if shown is None or native.kind not in _CONSTANT_KINDS or self._has_other_default(state):
            return None
        if self._after is not None and column[0].name in self._after.protected:
            return None
        if any(
            other.slot is state.slot and other.name != state.name for others in self._columns_after for other in others
        ):
            # Rows of an older structure may have it under the other name.
            return None
        given = first.default
        if given in ("TRUE", "FALSE"):
            given = "1" if given == "TRUE" else "0"
        try:
            text = constant_default(given, "", native, is_mariadb=True)
            same = text == shown or (native.kind in (*INTEGERS, "decimal") and Decimal(text or "") == Decimal(shown))
        except (ValueError, InvalidOperation):
            return None
        return shown if same else None

    def _has_other_default(self, state: _ColumnState) -> bool:
        return any(
            isinstance(action, SetDefault) and _same(action.name, state.name)
            for actions in self._actions
            for action in actions
        )


_KEEPING_COLUMNS = frozenset(("IGNORE", "DROP", "TRUNCATE", "EXCHANGE", "REPAIR", "DISCARD", "IMPORT", "CONVERT"))
"""How clauses begin that are not proven harmless, but leave the columns as they are."""


def origin_of(path: str, statement: Statement) -> str:
    """Which table had, before a statement, the rows that a table has after it."""
    origin = path
    for old, new in reversed(statement.renamed):
        if f"{new.database}.{new.name}" == origin:
            origin = f"{old.database}.{old.name}"
    return origin


def _column_of(table: MysqlTable, name: str) -> tuple[Column, NativeType] | None:
    columns = zip(table.schema.columns, table.natives, strict=True)
    return next(((column, native) for column, native in columns if _same(column.name, name)), None)


def _same(name: str, other: str) -> bool:
    return name.casefold() == other.casefold()


def _is_named(named: Named, path: str) -> bool:
    return path == f"{named.database}.{named.name}" or (not named.name and path.startswith(f"{named.database}."))
