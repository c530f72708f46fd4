"""Pipelines by chance: a database, what happens to it, the options, the sinks, and where the run stops.

A pipeline is plain data: drawn from a seed, spelled as Python that makes it again, and made smaller while it fails.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace

Value = int | str | None
"""A value as the workload gives it; numbers with two digits after the point are texts."""

KINDS = ("sqlserver", "db2", "db2-images", "oracle")
APART = frozenset(("oracle",))
"""Emulated servers that take names which differ by case only for two."""
MERGING = frozenset(("db2", "db2-images"))
"""Servers whose change tables do not tell a delete before an insert from an update of a key."""
UNQUOTED = frozenset(("oracle",))
"""Servers whose names can't have a double quote in them."""
SINKS = ("once", "replacing", "appending")
CRASHES = ("planned", "written 1", "written 2", "written 3", "done")
"""Where a run ends in the midst of a batch: before any sink has it, after the n-th has it, before it is committed."""
POINTS = (
    "source.snapshot.chunk",
    "source.snapshot.batch",
    "source.stream.batch",
    "source.incremental.read",
    "source.incremental.wait",
    "source.incremental.chunk",
    "source.oracle.upper",
)
"""Moments of a batch at which somebody else commits."""


@dataclass(frozen=True)
class Column:
    """A column; its role says what the workload does with it."""

    name: str
    role: str
    kind: str


@dataclass(frozen=True)
class Table:
    """A table with rows that were there before capture began.

    Args:
        name: as the catalog has it.
        columns: in order; the column with the role `n` finds rows, the one with the role `v` is new at each update.
        key: `primary`, `unique` (an index whose columns take NULL) or `none`; of the columns with the role `key`.
        rows: values in column order.
        included: whether the pipeline captures it.
    """

    name: str
    columns: tuple[Column, ...]
    key: str
    rows: tuple[tuple[Value, ...], ...] = ()
    included: bool = True

    @property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.role == "key")

    def place(self, role: str) -> int:
        return next(i for i, column in enumerate(self.columns) if column.role == role)


@dataclass(frozen=True)
class Change:
    """One statement.

    Args:
        table: its number.
        kind: `insert` (a row), `update` (`values` by place, of rows with `n` from `low` to `high`), `delete` or `shift`
            (the first key column, a number, plus `by`).
        row: the row that is inserted.
        low: rows from this `n`.
        high: rows up to and with this `n`.
        values: what an update sets, by place of the column.
        by: how far a key is shifted.
    """

    table: int
    kind: str
    row: tuple[Value, ...] = ()
    low: int = 0
    high: int = 0
    values: tuple[tuple[int, Value], ...] = ()
    by: int = 0


@dataclass(frozen=True)
class Commit:
    """Statements in one transaction, which the server may refuse as a whole."""

    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Capture:
    """The server's capture program looks at its log."""


@dataclass(frozen=True)
class Batch:
    """One batch, or none where nothing is new.

    Args:
        crash: one of `CRASHES`; empty for a batch that is committed.
        point: where somebody else commits meanwhile.
        meanwhile: what.
        twice: whether each task is done twice, its first result thrown away.
    """

    crash: str = ""
    point: str = ""
    meanwhile: Commit | None = None
    twice: bool = False


@dataclass(frozen=True)
class Drain:
    """Batches until nothing is new; then the sinks are compared with the model."""


@dataclass(frozen=True)
class Once:
    """A new process runs until everything is there that the source offers; then the sinks are compared."""


@dataclass(frozen=True)
class Restart:
    """The run is stopped in order, and a new process goes on."""


@dataclass(frozen=True)
class AdHoc:
    """A signal asks for tables again."""

    tables: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class Alter:
    """A table gets one more column, in the way in which its kind of server goes on capturing it."""

    table: int


@dataclass(frozen=True)
class Off:
    """A table is captured no longer."""

    table: int


@dataclass(frozen=True)
class On:
    """It is captured again."""

    table: int


@dataclass(frozen=True)
class Clean:
    """The server forgets all changes that it captured."""


Step = Commit | Capture | Batch | Drain | Once | Restart | AdHoc | Alter | Off | On | Clean


@dataclass(frozen=True)
class Pipeline:
    """All of it.

    Args:
        server: one of `KINDS`.
        tables: the database.
        options: the source's, as they stand in the file.
        sinks: some of `SINKS`.
        steps: what happens.
        column_options: number of table, place of column and what is done with it: `left out`, `masked`, `cut`,
            `hashed`.
        listed: how `tables` names them: `all`, `schema` or `names`.
        filtered: number of sink (from 1) and number of table, for a sink that has only the rows whose column with the
            role `v` is even. What is run without Spark has no filters.
    """

    server: str
    tables: tuple[Table, ...]
    options: tuple[tuple[str, str | int | bool], ...]
    sinks: tuple[str, ...]
    steps: tuple[Step, ...]
    column_options: tuple[tuple[int, int, str], ...] = ()
    listed: str = "all"
    filtered: tuple[tuple[int, int], ...] = ()


PLAIN_NAMES = ("ORDERS", "LINES", "T1")
ODD_NAMES = (
    "order", "select", "my table", "a.b", "a,b", "q'uote", 'dou"ble', "a]b", "[x]", "100%", "under_score", "$dollar",
    "\u00fcmlaut", "\u8868", "a+b", "a(b)", "dash-ed", "a;b", "a:b", "back\\slash", "re:x", "star*", "T", "t",
)  # fmt: skip
COLUMN_NAMES = (
    "id", "ID2", "key", "value", "op", "table", "before", "after", "position", "two words", "a.b", "a,b", "q'c", 'd"c',
    "x]y", "\u00e4", "from", "n?", "p%", "a:b", "C$", "null",
)  # fmt: skip
TEXTS = (
    "", " ", "a", "A", "b", "ab", "a ", "\u00e4", "O'Brien", 'x"y', "a,b", "a.b", "line\nbreak", "NULL", "null", "\\",
    "\U0001f600", "\u00df", "%", "_", "[x]", "tab\t", "0", "-1", "{}", "''", "--", "\u0130", "zz", "a\\'b", "|", "?",
    ":x",
)  # fmt: skip
NUMBERS = ("0.00", "0.10", "-1.00", "12.50", "9999999.99", "-0.01", "100.00")
MODES = ("initial",) * 8 + ("no_data", "always", "when_needed", "recovery")


def draw(seed: int) -> Pipeline:
    """The pipeline of a seed."""
    return _Draw(random.Random(seed)).pipeline()


class _Draw:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.number = 0
        self.moves = True

    def pipeline(self) -> Pipeline:
        rng = self.rng
        self.server = rng.choice(KINDS)
        names = rng.sample(PLAIN_NAMES, 3) if rng.random() < 0.4 else rng.sample(ODD_NAMES, 3)
        if self.server not in APART and {"T", "t"} <= set(names):
            names.remove("t")
        names = [name.replace('"', "") if self.server in UNQUOTED else name for name in names[: rng.randrange(1, 4)]]
        self.tables = [self.table(name) for name in names]
        if len(self.tables) > 1 and rng.random() < 0.3:
            # A list takes names in any case, so it can't leave out one of two that differ by it.
            alike = [t.name for t in self.tables if t.name.casefold() == self.tables[-1].name.casefold()]
            self.tables[-1] = replace(self.tables[-1], included=len(alike) > 1)
        listed = "names" if not all(t.included for t in self.tables) else rng.choice(("all", "schema", "names"))
        mode = rng.choice(MODES)
        options: dict[str, str | int | bool] = {
            "snapshot_mode": mode,
            "snapshot_chunk_rows": rng.choice((1, 2, 3, 5, 100)),
            "snapshot_chunks_per_batch": rng.choice((1, 2, 4)),
            "max_commits_per_trigger": rng.choice((0, 1, 2, 5, 50)),
            "provide_transaction_metadata": rng.random() < 0.3,
            "incremental_snapshot_chunk_size": rng.choice((1, 2, 3, 100)),
        }
        if self.server == "oracle":
            options |= {"rows_per_slice": rng.choice((1, 2, 50)), "mining_range_scns": rng.choice((10, 30, 1000))}
        else:
            options["commits_per_slice"] = rng.choice((1, 2, 100))
        if self.server == "sqlserver":
            isolation = ("read_committed",) * 3 + ("repeatable_read", "snapshot", "read_uncommitted")
            options["snapshot_isolation_mode"] = rng.choice(isolation)
        column_options = self.column_options()
        self.moves = rng.random() < 0.85
        if not self.moves:
            # An update of a key may be told as a delete and an insert, so the two don't go together.
            options["skipped_operations"] = rng.choice(("c", "u", "d"))
        if rng.random() < 0.2:
            options["skip_messages_without_change"] = True
        sinks = tuple(rng.choice(SINKS) for _ in range(rng.choice((1, 2, 2, 3))))
        steps = tuple(self.steps())
        captured = [number for number, table in enumerate(self.tables) if table.included]
        filtered = tuple((p, n) for p in range(1, len(sinks) + 1) for n in captured if rng.random() < 0.25)
        given = tuple(options.items())
        return Pipeline(self.server, tuple(self.tables), given, sinks, steps, column_options, listed, filtered)

    def table(self, name: str) -> Table:
        rng = self.rng
        names = rng.sample(("K0", "K1", "C0", "C1", "N", "x", "V"), 6)
        if rng.random() < 0.5:
            names = []
            for one in rng.sample(COLUMN_NAMES, len(COLUMN_NAMES)):
                if one.casefold() not in {other.casefold() for other in names}:
                    names.append(one.replace('"', "") if self.server in UNQUOTED else one)
        key = rng.choice(("primary",) * 4 + ("unique",) * 2 + ("none",))
        kinds = rng.choice((("int",), ("text",), ("int", "text"), ("text", "int"), ("int", "int")))
        kinds = () if key == "none" else kinds
        roles = [("key", kind) for kind in kinds] + [("n", "int"), ("v", "int"), ("s", "text"), ("d", "number")]
        columns = [Column(one, role, kind) for one, (role, kind) in zip(names, roles, strict=False)]
        if rng.random() < 0.5:
            rng.shuffle(columns)
        table = Table(name, tuple(columns), key)
        rows: list[tuple[Value, ...]] = []
        for _ in range(rng.choice((0, 1, 3, 6, 9))):
            row = self.row(table)
            if _free(table, rows, row, self.server):
                rows.append(row)
        return replace(table, rows=tuple(rows))

    def row(self, table: Table) -> tuple[Value, ...]:
        rng = self.rng
        self.number += 1
        n = rng.randrange(3) if table.key == "none" else self.number
        drawn: list[Value] = []
        for column in table.columns:
            if column.role == "n":
                drawn.append(n)
            elif column.role == "v":
                drawn.append(0 if table.key == "none" else self.number)
            elif column.role == "key" and table.key == "unique" and rng.random() < 0.35:
                drawn.append(None)
            elif column.role == "key" and column.kind == "text":
                # Oracle takes an empty text for NULL.
                drawn.append(rng.choice(TEXTS[1:] if self.server == "oracle" else TEXTS))
            else:
                drawn.append(self.value(column.kind))
        return tuple(drawn)

    def value(self, kind: str) -> Value:
        rng = self.rng
        if kind == "int":
            return rng.choice((rng.randrange(-3, 12), rng.randrange(12), 2147483647, -2147483648))
        if rng.random() < 0.2:
            return None
        return rng.choice(TEXTS if kind == "text" else NUMBERS)

    def column_options(self) -> tuple[tuple[int, int, str], ...]:
        found = []
        for number, table in enumerate(self.tables):
            if table.included and self.rng.random() < 0.25:
                role, what = self.rng.choice(
                    (("s", "masked"), ("s", "cut"), ("s", "hashed"), ("s", "left out"), ("d", "left out"))
                )
                found.append((number, table.place(role), what))
        return tuple(found)

    def commit(self) -> Commit:
        rng = self.rng
        changes = tuple(self.change(rng.randrange(len(self.tables))) for _ in range(rng.choice((1, 1, 2, 4))))
        if not self.moves and self.server in MERGING:
            changes = tuple({change.table: change for change in changes}.values())
        return Commit(changes)

    def change(self, number: int) -> Change:
        rng, table = self.rng, self.tables[number]
        low = rng.randrange(self.number + 1) if table.key != "none" else rng.randrange(3)
        high = low + rng.choice((0, 0, 0, 3))
        kind = rng.choice(("insert",) * 4 + ("update",) * 4 + ("delete",) * 2 + ("move", "shift"))
        first = next((column for column in table.columns if column.role == "key"), None)
        if kind == "shift" and (first is None or first.kind != "int"):
            kind = "insert"
        if kind in ("move", "shift") and not self.moves:
            kind = "update"
        if kind == "move" and table.key == "none":
            kind = "update"
        if kind == "insert":
            return Change(number, "insert", row=self.row(table))
        if kind == "shift":
            return Change(number, "shift", low=low, high=high, by=rng.choice((1, -1, 2)))
        self.number += 1
        values: dict[int, Value] = {table.place("v"): self.number}
        for role in ("s", "d"):
            if rng.random() < 0.5:
                place = table.place(role)
                values[place] = self.value(table.columns[place].kind)
        if kind == "move":
            row = self.row(table)
            high = low
            values |= {i: row[i] for i, column in enumerate(table.columns) if column.role == "key"}
            kind = "update"
        return Change(number, kind, low=low, high=high, values=tuple(values.items()) if kind == "update" else ())

    def steps(self) -> Iterator[Step]:
        rng = self.rng
        off: list[int] = []
        strange = rng.random() < 0.25
        for _ in range(rng.choice((2, 5, 10, 16))):
            roll = rng.random()
            if strange and rng.random() < 0.25:
                yield from self.strange(off)
            if roll < 0.35:
                yield self.commit()
            elif roll < 0.5:
                yield Capture()
            elif roll < 0.78:
                crash = rng.choice(CRASHES) if rng.random() < 0.4 else ""
                point = rng.choice(POINTS) if rng.random() < 0.4 else ""
                yield Batch(crash, point, self.commit() if point else None, rng.random() < 0.3)
            elif roll < 0.83:
                yield Drain()
            elif roll < 0.87:
                yield Once()
            elif roll < 0.92:
                yield Restart()
            else:
                captured = [i for i, table in enumerate(self.tables) if table.included]
                chosen = tuple(sorted(rng.sample(captured, rng.randrange(1, len(captured) + 1))))
                yield AdHoc(chosen, rng.choice(("incremental", "incremental", "blocking")))
                yield Capture()
        yield from map(On, off)
        yield rng.choice((Drain(), Once()))

    def strange(self, off: list[int]) -> Iterator[Step]:
        """What does not happen every day."""
        rng = self.rng
        number = rng.choice([i for i, table in enumerate(self.tables) if table.included])
        what = rng.choice(("alter", "switch", "clean"))
        if what == "clean":
            if rng.random() < 0.9:
                yield Drain()
            yield Clean()
        elif number in off:
            off.remove(number)
            yield On(number)
        elif what == "alter":
            yield Alter(number)
        else:
            off.append(number)
            yield Off(number)


def _free(table: Table, rows: list[tuple[Value, ...]], row: tuple[Value, ...], server: str) -> bool:
    """Whether a row's key is not taken, however the server compares texts."""
    if table.key == "none":
        return True
    places = [i for i, column in enumerate(table.columns) if column.role == "key"]
    folded = [tuple(_folded(r[i]) for i in places) for r in (*rows, row)]
    if server == "oracle" and all(row[i] is None for i in places):
        # Such rows are in no index there, so that they are told apart by nothing.
        return False
    return folded[-1] not in folded[:-1]


def _folded(value: Value) -> object:
    return re.sub(r"\s+$", "", value).casefold() if isinstance(value, str) else value


def written(thing: object) -> str:
    """Python that makes it again; what is as usual is left out."""
    if isinstance(thing, tuple):
        return f"({', '.join(map(written, thing))}{',' if len(thing) == 1 else ''})"
    if not is_dataclass(thing):
        return repr(thing)
    given = ((field, getattr(thing, field.name)) for field in fields(thing))
    told = (f"{field.name}={written(value)}" for field, value in given if value != field.default)
    return f"{type(thing).__name__}({', '.join(told)})"


def smaller(pipeline: Pipeline, fails: Callable[[Pipeline], bool], tries: int = 300) -> Pipeline:
    """A pipeline that fails too, with as little in it as can be found by leaving things out."""
    left = tries
    found = True
    while found and left > 0:
        found = False
        for candidate in _parts(pipeline):
            left -= 1
            if left <= 0:
                break
            if fails(candidate):
                pipeline, found = candidate, True
                break
    return pipeline


def _parts(p: Pipeline) -> Iterator[Pipeline]:
    size = len(p.steps) // 2
    while size:
        for at in range(0, len(p.steps), size):
            yield replace(p, steps=p.steps[:at] + p.steps[at + size :])
        size //= 2
    for i in range(len(p.options)):
        yield replace(p, options=p.options[:i] + p.options[i + 1 :])
    for i in range(len(p.column_options)):
        yield replace(p, column_options=p.column_options[:i] + p.column_options[i + 1 :])
    for i in range(len(p.sinks)):
        if len(p.sinks) > 1:
            yield replace(p, sinks=p.sinks[:i] + p.sinks[i + 1 :])
    if len(p.tables) > 1:
        last = len(p.tables) - 1
        steps = [_without(step, last) for step in p.steps]
        options = tuple(option for option in p.column_options if option[0] != last)
        yield replace(p, tables=p.tables[:-1], steps=tuple(s for s in steps if s is not None), column_options=options)
    for t, table in enumerate(p.tables):
        for i in range(len(table.rows)):
            smaller_table = replace(table, rows=table.rows[:i] + table.rows[i + 1 :])
            yield replace(p, tables=(*p.tables[:t], smaller_table, *p.tables[t + 1 :]))
    for s, step in enumerate(p.steps):
        for simpler in _simpler(step):
            yield replace(p, steps=(*p.steps[:s], simpler, *p.steps[s + 1 :]))


def _without(step: Step, table: int) -> Step | None:
    if isinstance(step, Commit):
        changes = tuple(change for change in step.changes if change.table != table)
        return Commit(changes) if changes else None
    if isinstance(step, Batch) and step.meanwhile is not None:
        left = _without(step.meanwhile, table)
        return replace(step, meanwhile=left) if isinstance(left, Commit) else replace(step, point="", meanwhile=None)
    if isinstance(step, (Alter, Off, On)) and step.table == table:
        return None
    if isinstance(step, AdHoc):
        tables = tuple(number for number in step.tables if number != table)
        return replace(step, tables=tables) if tables else None
    return step


def _simpler(step: Step) -> Iterator[Step]:
    if isinstance(step, Commit) and len(step.changes) > 1:
        for i in range(len(step.changes)):
            yield Commit(step.changes[:i] + step.changes[i + 1 :])
    if isinstance(step, Batch):
        if step.meanwhile is not None:
            yield replace(step, point="", meanwhile=None)
        if step.crash:
            yield replace(step, crash="")
        if step.twice:
            yield replace(step, twice=False)
