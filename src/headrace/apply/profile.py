"""What a batch holds, table by table, learned in one small Spark job before anything is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.apply.column_names import Step, after_steps, renamed_keys, steps_of
from headrace.apply.sequence import GIVEN, MARK, SUFFIX, no_order
from headrace.apply.transactions import FROM_MESSAGE, IS_MOVED_PAIR, KEY_CHANGED, WHOLE_DELETES
from headrace.changes.one_table import in_turn, work_on
from headrace.changes.position import ADDED_COLUMNS, READ_AGAIN, READ_AGAIN_FROM, SNAPSHOT_ORDER
from headrace.changes.row import DATA_OPERATIONS, SNAPSHOT_ENDS, Operation
from headrace.changes.table import LIST_SCHEMAS, Column, TableId, TableSchema
from headrace.changes.table_files import FOLDED, FOLDED_COUNTS, WRITTEN, FoldedPart, WrittenFile
from headrace.changes.typed import Misfit, laid_over, literal, quote, same_table
from headrace.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READ, _CREATE, _UPDATE, _DELETE, _TRUNCATE = DATA_OPERATIONS

IS_UNMARKED_PAIR = (
    f"op = 'd' and ({WHOLE_DELETES} or (not {FROM_MESSAGE} and source['connector'] <=> 'postgresql' "
    "and coalesce(size(before), 0) > 1))"
)
"""A delete that may be one half of a change of key, or be about a row whose key another one has by now."""


_STATEMENT = r"op = 'schema' and coalesce(source['ddl'] rlike '(?i)\\b(rename|change|drop|add)\\b', false)"
_READ_ENDS = f"snapshot in {SNAPSHOT_ENDS}"

_AGAIN = f"position rlike '^[^/]*/{READ_AGAIN}'"
_READ_BEGINS = f"regexp_extract(position, '^[^/]*/({READ_AGAIN})?', 0)"

_AFTER_READ = chr(ord(SNAPSHOT_ORDER) + 1)
"""Sorts after the order of every row that was read at a commit."""


class OldValue(NamedTuple):
    """The one value that all rows from before have in a column that was added.

    Args:
        text: the canonical text; None for NULL.
        before: rows of a target that are older than this position have it; none where it is empty.
    """

    text: str | None
    before: str


@dataclass(frozen=True)
class TableProfile:
    """What one batch holds of one table; all that a sink needs to know before it folds and writes.

    Args:
        id: the table.
        schema: its newest schema in the batch, which types the values.
        columns: how many columns each schema has that rows of the batch follow, by `schema_id`.
        counts: data rows by operation.
        truncate_at: position of the last truncate; rows up to it no longer matter.
        partial: some image may lack columns of the newest schema, so that the target's values must be kept.
        key_changed: some update may carry a row to another key.
        key_paired: some delete or create may be one half of a change of key.
        initial: every data row was read by the source's own first snapshot, which reads a key once. Not so rows decoded
            from messages, which may repeat, streamed changes and incremental snapshots.
        snapshot_ended: the last row of the table's snapshot is among them.
        read_again_from: where the read of the whole table began that ends in this batch; the source has no row that is
            older in a target. Known of the source's own reads.
        width: how many columns the newest schema has in the source; 0 for as many as `schema`.
        decoded: some row comes from a message, whose position compares in its sequence only.
        given: the `schema_id` of schemas that the user gave. Rows may be older than them, so what an insert lacks
            was not there yet.
        steps: what statements in the batch do to the names of columns. Where they come with neither rows nor a
            schema, `schema` has no columns.
        renamed: what columns of older schemas are called in `schema`, by `schema_id`; see `as_newest`.
        old_values: the columns of `schema` that were added with one value for all rows from before.
        lacked: which of them schemas lack that rows follow, by `schema_id`.
        null_misfits: whether null stands for values that the columns of the target have no place for, but in keys.
        remedies: how to go on where there is such a value: in a column of the key, and in another.
        lacks: regular expressions of texts that the target has no place for beside those that Spark has none for, by
            column.
        target: what the target is called.
        written: the files that hold data rows, which count as others; only rows that no file took are change rows.
        folded: what tasks folded and wrote into files where they decoded it; its rows count as others, likewise.
    """

    id: TableId
    schema: TableSchema
    columns: Mapping[str | None, int]
    counts: Mapping[str, int] = field(default_factory=dict)
    truncate_at: str | None = None
    partial: bool = False
    key_changed: bool = False
    key_paired: bool = False
    initial: bool = False
    snapshot_ended: bool = False
    read_again_from: str | None = None
    width: int = 0
    decoded: bool = False
    given: frozenset[str] = frozenset()
    steps: tuple[Step, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    old_values: Mapping[str, OldValue] = field(default_factory=dict)
    lacked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    null_misfits: bool = False
    remedies: tuple[str, str] = ("", "")
    lacks: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    written: tuple[WrittenFile, ...] = ()
    folded: tuple[FoldedPart, ...] = ()

    def misfit(self, column: Column, keys: Mapping[str, str] | None = None) -> Misfit:
        """What is said of a text that a column has no value for.

        Args:
            column: the column.
            keys: Spark SQL for the columns of the key, which name the row.
        """
        lacks = self.lacks.get(column.name, "")
        if column.name in self.schema.key:
            return Misfit(str(self.id), remedy=self.remedies[0], lacks=lacks, target=self.target)
        named = [f"concat({literal(f'{name}=')}, cast({sql} as string))" for name, sql in (keys or {}).items()]
        row = f"concat_ws(', ', {', '.join(named)})" if named else ""
        return Misfit(str(self.id), row, self.null_misfits, self.remedies[1], lacks, self.target)

    def misfit_in_texts(self, column: Column) -> Misfit:
        """As `misfit`, where the column `texts` has the texts of all columns in order."""
        columns, key = self.schema.columns, self.schema.key
        return self.misfit(column, {c.name: f"texts[{at}]" for at, c in enumerate(columns) if c.name in key})

    @property
    def emptying(self) -> TableProfile:
        """The same batch for a target that may have rows from before its snapshot: what was not read again is gone.

        A read stamps all rows with one commit, so it is a truncate at the beginning of that commit.
        """
        if self.read_again_from is None or self.read_again_from < (self.truncate_at or ""):
            return self
        return replace(self, truncate_at=self.read_again_from)

    @property
    def gone_before(self) -> str | None:
        """The position before which rows of the target go; None where none does.

        A table that is read again at the commit of an earlier read has the same positions again. A key absorbs them;
        without one, what the earlier read left goes too.
        """
        if self.truncate_at is None or self.schema.key or self.truncate_at != self.read_again_from:
            return self.truncate_at
        return f"{self.truncate_at}{_AFTER_READ}"

    def selecting(self, wanted: Callable[[str], bool]) -> TableProfile:
        """The same batch of which only some columns are written; those of the key always are."""
        columns = tuple(c for c in self.schema.columns if c.name in self.schema.key or wanted(c.name))
        if columns == self.schema.columns:
            return self
        width = self.width or len(self.schema.columns)
        return replace(self, schema=replace(self.schema, columns=columns), width=width)

    @property
    def key_unknown(self) -> bool:
        """Whether the table may have a key that the schema lacks: only truncates came, which have no key."""
        return not self.schema.key and bool(self.schema.columns) and set(self.counts) == {_TRUNCATE}

    def keyed_by(self, key: tuple[str, ...]) -> TableProfile:
        """The same batch of a table whose key is known from elsewhere, where the schema has its columns."""
        if not {*key} <= {column.name for column in self.schema.columns}:
            return self
        return replace(self, schema=replace(self.schema, key=key))

    @property
    def size(self) -> int:
        """How many data rows there are."""
        return sum(self.counts.values())

    @property
    def inserts_only(self) -> bool:
        """Whether the data rows are reads and creates only."""
        return not any(self.counts.get(op, 0) for op in (_UPDATE, _DELETE, _TRUNCATE))

    @property
    def may_delete(self) -> bool:
        """Whether some row may go: by a delete, a change of its key, a truncate, or because it was not read again."""
        return bool(self.counts.get(_DELETE, 0)) or self.key_changed or self.truncate_at is not None

    @property
    def same(self) -> str:
        """Spark SQL that is true for rows of this table."""
        return same_table(self.id)

    @property
    def where(self) -> str:
        """Spark SQL that is true for the data rows of this table that still matter."""
        later = "" if self.truncate_at is None else f" and position > {literal(self.truncate_at)}"
        return f"op in ('r', 'c', 'u', 'd') and {self.same}{later}"

    @property
    def own_columns(self) -> str:
        """Spark SQL for the number of columns in the schema that a row follows."""
        newest = self.width or len(self.schema.columns)
        others = {name: n for name, n in self.columns.items() if name is not None and n != newest}
        if not others:
            return str(newest)
        cases = " ".join(f"when {literal(name)} then {n}" for name, n in sorted(others.items()))
        return f"case schema_id {cases} else {newest} end"


def profile(rows: DataFrame, known: Callable[[TableId], tuple[Step, ...]] = lambda _: ()) -> list[TableProfile]:
    """Say what a batch of change rows holds, table by table, ordered by table.

    Runs one Spark job in the driver's session over `rows` (persist them if they are expensive) and collects a
    few lines per table. Changes nothing; the same rows give the same answer.

    Args:
        rows: change rows of any tables with images as maps. Each table's `schema` row is among them. One without a
            position was given by the user: it is that of all rows that have its `schema_id`, and of no table alone.
        known: what is known to have happened to the column names of a table before what the rows say.

    Raises:
        SchemaError: data rows follow a schema that no `schema` row of the batch carries, or images are structs.
    """
    if rows.schema["after"].dataType.typeName() == "struct":
        raise SchemaError(
            "Tables need change rows whose images are maps, but these images are structs.",
            remedy="Set the format's option 'schema' to a list, even for one table.",
        )
    counts = ", ".join(f"count_if(op = '{op}') as n_{op}" for op in DATA_OPERATIONS)
    groups = (
        rows.where(
            f"op in ({', '.join(literal(op) for op in (*DATA_OPERATIONS, Operation.SCHEMA))}) and table is not null"
        )
        .selectExpr(
            "coalesce(table.database, '') as database",
            "coalesce(table.schema, '') as schema",
            "coalesce(table.name, '') as name",
            "schema_id",
            "op",
            "position",
            "snapshot",
            "message is not null as decoded",
            f"if(contains(position, '{MARK}'), right(position, {SUFFIX}), '') as sequence",
            "if(op = 'schema', table_schema, null) as schema_text",
            f"{_STATEMENT} as has_statement",
            f"if(op = 'schema', source['{READ_AGAIN_FROM}'], null) as beside_from",
            f"if(op = 'schema', source['{ADDED_COLUMNS}'], null) as old_values",
            f"if(op = 'schema', source['{WRITTEN}'], null) as written",
            f"if(op = 'schema' and source['{FOLDED}'] is not null, struct(source['{FOLDED_COUNTS}'] as counts, "
            f"source['{FOLDED}'] as results), null) as folded",
            "if(op in ('r', 'c', 'u'), coalesce(size(after), 0), null) as after_size",
            "if(op in ('u', 'd'), coalesce(size(before), 0), null) as before_size",
            f"{KEY_CHANGED} as key_changed",
            f"{IS_MOVED_PAIR} or coalesce({IS_UNMARKED_PAIR}, false) as key_paired",
        )
        .groupBy("database", "schema", "name", "schema_id")
        .agg(*_aggregates(counts))
        .collect()
    )
    by_table: dict[TableId, list[Any]] = {}
    for line in groups:
        by_table.setdefault(TableId(line["database"], line["schema"], line["name"]), []).append(line)
    given = {line["schema_id"]: line["schema_text"] for line in groups if line["schema_text"] and not line["schema_at"]}
    statements = _statements(
        rows, [id for id, lines in by_table.items() if any(line["has_statement"] for line in lines)]
    )

    def of_table(id: TableId) -> TableProfile:
        with work_on(id):
            return _table_batch(id, by_table[id], given, statements.get(id, _NOTHING), known(id))

    wanted = (
        id
        for id, lines in sorted(by_table.items())
        if any(line["last_at"] for line in lines)
        and not _has_only_statements(lines, statements.get(id, _NOTHING), given)
    )
    return in_turn(wanted, of_table)


def as_newest(rows: DataFrame, table: TableProfile) -> DataFrame:
    """The rows with the images and keys of one table as its newest schema has them: under its column names, and with
    the values that rows of an older schema have in columns which were added since. Lazy and pure.
    """
    return _with_old_values(_under_new_names(rows, table), table)


def _with_old_values(rows: DataFrame, table: TableProfile) -> DataFrame:
    if not table.lacked:
        return rows
    cases: list[tuple[str, str]] = []
    for id, names in sorted(table.lacked.items()):
        texts = [table.old_values[name].text for name in names]
        values = ", ".join("cast(null as string)" if text is None else literal(text) for text in texts)
        added = f"map_from_arrays(array({', '.join(map(literal, names))}), array({values}))"
        cases.append((literal(id), added))
    replaced = {
        image: "case schema_id "
        + " ".join(f"when {id} then {laid_over(added, image)}" for id, added in cases)
        + f" else {image} end"
        for image in ("before", "after")
    }
    return rows.selectExpr(
        *(f"{replaced[name]} as {name}" if name in replaced else quote(name) for name in rows.columns)
    )


def _under_new_names(rows: DataFrame, table: TableProfile) -> DataFrame:
    if not table.renamed:
        return rows
    names = {id: renamed for id, renamed in table.renamed.items() if renamed}
    replaced = {}
    for image in ("key", "before", "after"):
        cases = " ".join(
            f"when {literal(id)} then transform_keys({image}, (k, v) -> case k "
            + " ".join(f"when {literal(old)} then {literal(new)}" for old, new in renamed.items())
            + " else k end)"
            for id, renamed in sorted(names.items())
        )
        replaced[image] = f"case schema_id {cases} else {image} end"
    return rows.selectExpr(
        *(f"{replaced[name]} as {name}" if name in replaced else quote(name) for name in rows.columns)
    )


@dataclass(frozen=True)
class _TableStatements:
    """The statements that a batch has of one table.

    Args:
        steps: what each does to names, in order, with where it stands: a partition (empty for captured rows) and a
            position, which compares inside that only.
        last: the last position of the rows that follow a schema, by `schema_id` and partition.
    """

    steps: tuple[tuple[str, str, tuple[Step, ...]], ...] = ()
    last: Mapping[tuple[str | None, str], str] = field(default_factory=dict)

    @property
    def all(self) -> tuple[Step, ...]:
        return tuple(step for *_, steps in self.steps for step in steps)

    def since(self, schema_id: str | None) -> tuple[Step, ...]:
        """The steps that are not known to come before the rows of a schema."""
        return tuple(
            step
            for origin, position, steps in self.steps
            if self.last.get((schema_id, origin), "") < position
            for step in steps
        )


_NOTHING = _TableStatements()


def _statements(rows: DataFrame, tables: Iterable[TableId]) -> dict[TableId, _TableStatements]:
    """What the statements of these tables do to names. Runs one more small Spark job where there are any."""
    from pyspark.sql import functions as sf

    wanted = " or ".join(TableProfile(id, TableSchema(id, ()), {}).same for id in tables)
    if not wanted:
        return {}
    lines = (
        rows.where(f"op not in ('begin', 'end', 'heartbeat') and ({wanted})")
        .selectExpr(
            "coalesce(table.database, '') as database",
            "coalesce(table.schema, '') as schema",
            "coalesce(table.name, '') as name",
            "schema_id",
            "if(message is null, '', concat_ws('/', message.topic, message.partition)) as origin",
            "position",
            f"if({_STATEMENT}, struct(position, source['ddl'] as text, source['connector'] as connector), null) as one",
        )
        .groupBy("database", "schema", "name", "schema_id", "origin")
        .agg(sf.expr("max(position) as last"), sf.expr("collect_list(one) as statements"))
        .collect()
    )
    statements: dict[TableId, list[Any]] = {}
    for line in lines:
        statements.setdefault(TableId(line["database"], line["schema"], line["name"]), []).append(line)
    return {
        id: _TableStatements(
            tuple(
                sorted(
                    (line["origin"], one["position"] or "", _steps(one, captured=not line["origin"]))
                    for line in of_table
                    for one in line["statements"]
                )
            ),
            {(line["schema_id"], line["origin"]): line["last"] or "" for line in of_table if line["schema_id"]},
        )
        for id, of_table in statements.items()
    }


def _steps(statement: Any, *, captured: bool) -> tuple[Step, ...]:
    return steps_of(statement["text"], statement["connector"], captured=captured)


def _has_only_statements(lines: Iterable[Any], statements: _TableStatements, given: Mapping[str, str]) -> bool:
    """Whether there are only statements on a table: no rows, no schema, and no rename."""
    return not any(step.kind == "rename" for step in statements.all) and not any(
        line["schema_text"] or line["schema_id"] in given or any(line[f"n_{op}"] for op in DATA_OPERATIONS)
        for line in lines
    )


def _aggregates(counts: str) -> list[Any]:
    from pyspark.sql import functions as sf

    return [
        *(sf.expr(count) for count in counts.split(", ")),
        sf.expr("max_by(schema_text, position) filter (where schema_text is not null) as schema_text"),
        sf.expr("max(position) filter (where schema_text is not null) as schema_at"),
        sf.expr("max(position) as last_at"),
        sf.expr("bool_or(has_statement) as has_statement"),
        sf.expr("max(position) filter (where op = 't') as truncate_at"),
        sf.expr("coalesce(bool_or(decoded), false) as any_decoded"),
        sf.expr("min(sequence) filter (where op <> 'schema') as least_sequence"),
        sf.expr("max(sequence) filter (where op <> 'schema') as greatest_sequence"),
        sf.expr("min(after_size) as after_size"),
        sf.expr("min(before_size) as before_size"),
        sf.expr("coalesce(bool_or(key_changed), false) as key_changed"),
        sf.expr("coalesce(bool_or(key_paired), false) as key_paired"),
        sf.expr(f"count_if(op = 'r' and snapshot <> 'incremental' and not decoded and not {_AGAIN}) as initial"),
        sf.expr(f"coalesce(bool_or({_READ_ENDS}), false) as snapshot_ended"),
        sf.expr(
            f"greatest(max({_READ_BEGINS}) filter (where {_READ_ENDS} and not decoded), "
            "max(beside_from) filter (where not decoded)) as read_begins"
        ),
        sf.expr("collect_list(written) as written"),
        sf.expr("collect_list(folded) as folded"),
        sf.expr("max_by(old_values, position) filter (where old_values is not null and not decoded) as old_values"),
    ]


def _table_batch(
    id: TableId, lines: Iterable[Any], given: Mapping[str, str], statements: _TableStatements, known: tuple[Step, ...]
) -> TableProfile:
    lines, steps = list(lines), known + statements.all
    # Schemas at one position are ordered by the rows that follow them.
    versions = [
        (line["schema_at"] or "", line["last_at"] or "", line["schema_id"] or "", line)
        for line in lines
        if line["schema_text"] or line["schema_id"] in given
    ]
    counts: Counter[str] = Counter()
    written = {line["schema_id"]: tuple(map(WrittenFile.from_text, sorted(line["written"]))) for line in lines}
    in_files = {schema_id: sum(file.rows for file in files) for schema_id, files in written.items()}
    for line in lines:
        counts.update({str(op): line[f"n_{op}"] for op in DATA_OPERATIONS if line[f"n_{op}"]})
    if any(in_files.values()):
        counts[_READ] += sum(in_files.values())
    folded = {
        line["schema_id"]: tuple(FoldedPart.from_source(*one) for one in sorted(line["folded"])) for line in lines
    }
    for one in chain(*folded.values()):
        counts.update(one.counts)
    if not versions:
        # A truncate follows no schema, and may be all that there is of a table whose name was given in part.
        given_ids = [key for key, text in given.items() if _means(TableSchema.from_text(text).id, id)]
        versions = [("", "", key, {**lines[0].asDict(), "schema_id": key}) for key in given_ids]
    if not versions and not counts:
        return TableProfile(id, TableSchema(id, ()), {}, steps=statements.all)
    if not versions:
        if set(counts) == {_DELETE}:
            raise SchemaError(
                f"The schema of table {id} is unknown: the batch has only deletes of it, whose messages have no value "
                "and so no schema.",
                remedy=LIST_SCHEMAS,
            )
        raise SchemaError(
            f"The schema of table {id} is unknown: the batch has rows of the table but no schema row.",
            remedy="Let the writer send schemas with its messages (Debezium: value.converter.schemas.enable; Headrace: "
            f"schemas.enable of the sink's format). Or: {LIST_SCHEMAS}",
        )
    schemas = {
        # The user may have left the database out.
        line["schema_id"]: replace(TableSchema.from_text(line["schema_text"] or given[line["schema_id"]]), id=id)
        for *_, line in versions
    }
    # A truncate in a message has no key, and so has the schema that is read from it.
    followed = {
        line["schema_id"]
        for line in lines
        if in_files[line["schema_id"]]
        or folded[line["schema_id"]]
        or any(line[f"n_{op}"] for op in DATA_OPERATIONS if op != _TRUNCATE)
    }
    keyed = [one for one in versions if schemas[one[3]["schema_id"]].key or one[3]["schema_id"] in followed]
    sequences = {line[name] for line in lines for name in ("least_sequence", "greatest_sequence")} - {None}
    sequences.update(*(one.sequences for one in chain(*folded.values())))
    candidates = keyed or versions
    if len(sequences) > 1 and not steps:
        # Offsets of several partitions don't say which schema is newer; by the one with all columns none is lost.
        names_of = {key: {column.name for column in schema.columns} for key, schema in schemas.items()}
        every = set().union(*names_of.values())
        candidates = [one for one in candidates if names_of[one[3]["schema_id"]] == every] or candidates
    newest_id = max(candidates, key=lambda one: one[:3])[3]["schema_id"]
    newest = schemas[newest_id]
    # A schema that the user gave says nothing of when it is true.
    later = statements.all if newest_id in given else statements.since(newest_id)
    schema = after_steps(newest, later) if any(step.kind == "rename" for step in later) else newest
    now = [column.name for column in schema.columns]
    # Rows of the newest schema have its names, whatever happened before.
    since = {newest_id: later} if newest_id not in given else {}
    renamed = {
        key: renamed_keys([c.name for c in older.columns], since.get(key, steps), now, of=str(id), given=key in given)
        for key, older in schemas.items()
    }
    names = set(now)
    reported = max((line["old_values"] for line in lines if line["old_values"]), default="{}")
    old_values = {name: OldValue(*value) for name, value in json.loads(reported).items() if name in names}
    lacked: dict[str, tuple[str, ...]] = {}
    for key, known_schema in schemas.items():
        have = {renamed.get(key, {}).get(column.name, column.name) for column in known_schema.columns}
        lacked[key] = tuple(sorted(old_values.keys() - have)) if key not in given else ()
    columns = {schema_id: len(known.columns) + len(lacked[schema_id]) for schema_id, known in schemas.items()}
    partial = False
    for line in lines:
        follows = schemas.get(line["schema_id"]) if line["schema_id"] else schema
        images = [n for n in (line["after_size"], line["before_size"] if not schema.key else None) if n is not None]
        if follows is None and images:
            raise SchemaError(
                f"Rows of table {id} follow schema {line['schema_id']}, which no schema row of the batch describes.",
                remedy="Let the source or decoder emit schema rows with every batch.",
            )
        if follows is not None and images:
            # Without a key the target keeps no value, so a column that is newer than the row is simply null.
            called = renamed.get(line["schema_id"] or newest_id, {})
            have = {called.get(c.name, c.name) for c in follows.columns}
            lacking = bool(schema.key) and not names <= have | {*lacked.get(line["schema_id"] or newest_id, ())}
            partial = partial or lacking or min(images) < len(follows.columns)
    truncate_at = max((line["truncate_at"] for line in lines if line["truncate_at"]), default=None)
    matter = {
        line["schema_id"]: schemas[line["schema_id"]]
        for line in lines
        if line["schema_id"] in followed & set(schemas) and (line["last_at"] or "") > (truncate_at or "")
    }
    _require_one_kind(id, matter, renamed)
    if truncate_at is not None and len(sequences) > 1 and not truncate_at.startswith(GIVEN):
        # Whether a row came before the table was emptied, or after.
        raise no_order(str(id))
    return TableProfile(
        id=id,
        schema=schema,
        columns=columns,
        counts=dict(counts),
        truncate_at=truncate_at,
        partial=partial,
        key_changed=any(line["key_changed"] for line in lines),
        key_paired=any(line["key_paired"] for line in lines),
        initial=bool(counts) and sum(line["initial"] + in_files[line["schema_id"]] for line in lines) == counts.total(),
        snapshot_ended=any(line["snapshot_ended"] for line in lines),
        decoded=any(line["any_decoded"] for line in lines),
        read_again_from=max((line["read_begins"] for line in lines if line["read_begins"]), default=None),
        width=len(newest.columns) if len(newest.columns) != len(schema.columns) else 0,
        given=frozenset(key for key in schemas if key in given),
        steps=steps,
        renamed={key: names for key, names in renamed.items() if names},
        old_values=old_values,
        lacked={key: names for key, names in lacked.items() if names},
        written=tuple(file for files in written.values() for file in files),
        folded=tuple(chain(*folded.values())),
    )


def _require_one_kind(
    id: TableId, schemas: Mapping[str, TableSchema], renamed: Mapping[str, Mapping[str, str]]
) -> None:
    """See that no column has bytes by one schema and something else by another: the text of bytes is Base64.

    Sources end a batch in front of such a change of structure. This is for what they don't see.
    """
    kinds: dict[str, Column] = {}
    for key, schema in sorted(schemas.items()):
        for column in schema.columns:
            name = renamed.get(key, {}).get(column.name, column.name)
            other = kinds.setdefault(name, column)
            if (column.logical.kind == "bytes") is not (other.logical.kind == "bytes"):
                raise SchemaError(
                    f"Column '{name}' of table {id} is {other.native_type or other.logical} in some rows of a batch "
                    f"and {column.native_type or column.logical} in others, and these can't be one column.",
                    remedy="Run once with on_table_error: park, which leaves the table out, and read it again: "
                    f"headrace repair reread <pipeline> {id}.",
                )


def _means(given: TableId, id: TableId) -> bool:
    """Whether two names, of which either may lack parts, can be of one table."""
    parts = ((given.database, id.database), (given.schema, id.schema), (given.name, id.name))
    return all(not ours or not theirs or ours == theirs for ours, theirs in parts)
