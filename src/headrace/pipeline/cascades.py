"""Rows that foreign keys delete or change without a change in the log: looked up in a sink, and given to all sinks.

The source has these rows no longer, but a table that a sink keeps still does: it is as the source was when the batch
began. What refers to a row that the batch deletes or changes is looked up there and among the batch's own changes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.apply.cascades import Added, Change, Image, RowKey, added_changes, row_key
from headrace.changes import Column, TableId, TableSchema
from headrace.changes.foreign_key import Cascade, ForeignKey
from headrace.changes.one_table import work_on
from headrace.changes.row import Operation
from headrace.changes.texts import canonical_text, key_text
from headrace.changes.typed import literal, quote
from headrace.errors import SchemaError
from headrace.faultpoints import reach
from headrace.observe.progress import BatchCount
from headrace.pipeline.added_rows import Cause, KeptRows, counts_with, lines_of, rows_of
from headrace.pipeline.checkpoint import Checkpoint
from headrace.pipeline.target import Target
from headrace.sources.databases import Databases, Offsets
from headrace.sources.tables.rewrites import Unlogged, read_again
from headrace.spark.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = logging.getLogger("headrace.pipeline")
_ROWS = (Operation.READ, Operation.CREATE, Operation.UPDATE, Operation.DELETE)
_CHANGED = (Operation.UPDATE, Operation.DELETE)
_MOST_VALUES = 1000
_PLAIN = ("tinyint", "smallint", "int", "bigint", "decimal", "string", "date")
_NO_TABLE = "no sink keeps tables in which they can be looked up as the source has them (delta, iceberg, jdbc)"


def mirror_of(targets: Iterable[Target]) -> Target | None:
    """The first sink whose tables can be read and are called as in the source; None where there is none."""
    return next((t for t in targets if t.sink.reads_back != "no" and t.shaping.changes_nothing), None)


def described(cascades: Iterable[Cascade], targets: Sequence[Target]) -> list[Unlogged]:
    """What foreign keys do to each table, and what happens then; the remedy is empty where nothing is lost.

    Args:
        cascades: foreign keys whose actions no log carries.
        targets: the sinks.
    """
    mirror = mirror_of(targets)
    sentences: dict[str, list[str]] = {}
    lost: set[str] = set()
    for cascade in cascades:
        path, lack = cascade.key.child.path, _lack(cascade, mirror)
        consequences = sentences.setdefault(path, [])
        if lack:
            lost.add(path)
            consequences.append(f"{cascade.sentence}: the sinks keep these rows as they were, because {lack}.")
        else:
            assert mirror is not None
            consequences.append(
                f"{cascade.sentence}: these rows are looked up in {mirror.label} and given to all sinks."
            )
            if cascade.computed:
                lost.add(path)
                names = ", ".join(f"'{name}'" for name in cascade.computed)
                consequences.append(
                    f"Values that the server computes in them ({names}) stay until the row's next change."
                )
    return [
        Unlogged(path, " ".join(consequences), _remedy(path) if path in lost else "")
        for path, consequences in sentences.items()
    ]


def _lack(cascade: Cascade, mirror: Target | None) -> str:
    return cascade.lack or ("" if mirror is not None else _NO_TABLE)


def _remedy(path: str) -> str:
    return f"Let the application itself delete or change these rows. {read_again(path)}"


class Cascades:
    """Adds to each batch the rows that foreign keys deleted or changed. Runs in the driver.

    Args:
        databases: the source.
        targets: the sinks.
        checkpoint: where the batch's offsets are, and where added rows are kept.
    """

    def __init__(self, databases: Databases, targets: Sequence[Target], checkpoint: Checkpoint) -> None:
        self._databases, self._targets, self._checkpoint = databases, targets, checkpoint
        self._mirror = mirror_of(targets)
        self._kept = KeptRows(checkpoint)
        self._said: set[str] = set()
        self._has_written = False

    def below(self, table: TableId, batch: int) -> list[TableId]:
        """The tables whose rows the database deletes or changes with rows of a table, directly or by others of them.

        Args:
            table: the table.
            batch: the number of a batch, at whose end it is asked.
        """
        end = Offsets.from_text(self._checkpoint.offset(batch)) or Offsets()
        keys = [cascade.key for cascade in self._databases.cascades(end, end)]
        reached = {table: None}
        while more := {key.child for key in keys if key.parent in reached} - set(reached):
            reached |= dict.fromkeys(sorted(more))
        return list(reached)[1:]

    def followed(
        self, rows: DataFrame, counts: Sequence[BatchCount], batch: int, parked: Collection[TableId] = ()
    ) -> tuple[DataFrame, Sequence[BatchCount]]:
        """A batch's rows and counts with what foreign keys add to them; the same where they add nothing.

        Args:
            rows: the batch as the source gives it, persisted.
            counts: its rows by table and operation.
            batch: its number.
            parked: tables whose rows nobody asks for, because their targets lack changes.

        Raises:
            SchemaError: rows that should be looked up can't be.
        """
        kept = self._kept.of(batch)
        if kept is None:
            if self._has_written and not any(count.op in _CHANGED for count in counts):
                return rows, counts
            keys, uncertain, offsets = self._keys(batch)
            schemas = {schema.id: schema for schema in self._databases.schemas(offsets)}
            keys = [key for key in keys if key.child in schemas and key.parent in schemas and key.child not in parked]
            parents = {key.parent for key in keys}
            if not any(count.op in _CHANGED and count.id in parents for count in counts):
                return rows, counts
            assert self._mirror is not None
            look = _RowLookup(rows, self._mirror, schemas, {count.id for count in counts if count.id is not None})
            causes = look.causes(keys)
            if not causes:
                return rows, counts
            identities = {key.child: _identity(schemas[key.child]) for key in keys}
            added = self._added(keys, uncertain, identities, causes, look, offsets)
            facts = look.facts({one.cause.position for one in added})
            kept = lines_of(added, facts, schemas)
            # Also where nothing follows: what a sink has after the batch would say something else.
            self._kept.keep(batch, kept)
            reach("pipeline.cascades.kept")
        if not kept:
            return rows, counts
        several = len(self._databases.sources) > 1
        return rows.unionByName(rows_of(rows.sparkSession, kept)), counts_with(counts, kept, several=several)

    def _added(
        self,
        keys: Sequence[ForeignKey],
        uncertain: Collection[ForeignKey],
        identities: Mapping[TableId, Sequence[str]],
        causes: Sequence[Change],
        look: _RowLookup,
        offsets: Offsets,
    ) -> list[Added]:
        """What foreign keys add; of those that came or went in the batch, without rows that the source still has."""
        asked: set[tuple[ForeignKey, RowKey]] = set()
        unchanged: set[tuple[ForeignKey, RowKey]] = set()
        while True:
            added = added_changes(keys, identities, causes, look, unchanged)
            new: dict[ForeignKey, dict[RowKey, Image]] = {}
            for one in added:
                at = row_key(identities[one.table], one.before)
                if one.key in uncertain and at is not None and (one.key, at) not in asked:
                    new.setdefault(one.key, {})[at] = one.before
            if not new:
                return added
            for key, rows in new.items():
                asked |= {(key, at) for at in rows}
                there = self._databases.still_there(key, list(rows.values()), offsets)
                unchanged |= {(key, at) for at, is_there in zip(rows, there, strict=True) if is_there}

    def _keys(self, batch: int) -> tuple[list[ForeignKey], set[ForeignKey], Offsets]:
        """The foreign keys that can be followed in a batch, and those of them that came or went in it; others are said
        once for each table."""
        start, end = (Offsets.from_text(text) or Offsets() for text in self._texts(batch))
        keys = self._databases.cascades(start, end)
        self._has_written = True
        for one in described(keys, self._targets):
            if one.remedy and one.table not in self._said:
                self._said.add(one.table)
                _LOG.warning("%s %s", one.sentence, one.remedy)
        followed = [cascade for cascade in keys if not _lack(cascade, self._mirror)]
        return [one.key for one in followed], {one.key for one in followed if not one.certain}, end

    def _texts(self, batch: int) -> Iterator[str | None]:
        return (self._checkpoint.offset(number) for number in (batch - 1, batch))


def _identity(schema: TableSchema) -> tuple[str, ...]:
    """The columns that tell a table's rows apart."""
    return schema.key if schema.primary_key is None else schema.primary_key


@dataclass
class _RowLookup:
    """Asks a sink and a batch for rows.

    Args:
        batch: the change rows of the batch.
        mirror: the sink.
        schemas: the source's tables.
        changed: the tables that the batch has rows of.
    """

    batch: DataFrame
    mirror: Target
    schemas: Mapping[TableId, TableSchema]
    changed: Collection[TableId]

    @property
    def _spark(self) -> SparkSession:
        return self.batch.sparkSession

    def causes(self, keys: Sequence[ForeignKey]) -> list[Change]:
        """The batch's deletes and updates from which something may follow, with the columns that decide it."""
        conditions = []
        names: dict[str, None] = {}
        for key in keys:
            differs = " or ".join(f"not (before[{name}] <=> after[{name}])" for name in map(literal, key.referenced))
            deletes = [f"op = '{Operation.DELETE}'"] if key.on_delete else []
            updates = [f"op = '{Operation.UPDATE}' and ({differs})"] if key.on_update else []
            conditions.append(f"({_of_table(key.parent)} and ({' or '.join([*deletes, *updates])}))")
            names |= dict.fromkeys([*key.referenced, *_identity(self.schemas[key.parent]), *_columns(keys, key.parent)])
        some = f"(k, v) -> k in ({', '.join(map(literal, names))})"
        images = [f"map_filter({image}, {some}) as {image}" for image in ("before", "after")]
        return self._changes(self.batch.where(" or ".join(conditions)), images)

    def rows(self, key: ForeignKey, to: Collection[str]) -> Iterable[Image]:
        """The rows of the sink's table that refer to any of these.

        Raises:
            SchemaError: the table lacks a column that this takes.
        """
        with work_on(key.child):
            return self._rows(key, to)

    def _rows(self, key: ForeignKey, to: Collection[str]) -> Iterable[Image]:
        schema = self.schemas[key.child]
        now = self.mirror.sink.now(self._spark, schema)
        if now is None:
            return []
        there = set(now.columns)
        columns = [column for column in schema.columns if column.name in there]
        lacking = next((name for name in (*key.columns, *_identity(schema)) if name not in there), None)
        if lacking is not None:
            raise SchemaError(
                f"Table '{key.child.path}' has no column '{lacking}' in {self.mirror.label}, which foreign key "
                f"'{key.name}' takes to find rows that the server deletes or changes without a change in its log.",
                remedy="Have the sink write the column, or set the source's option 'on_cascade' to warn.",
            )
        texts = [f"{_canonical(column)} as {quote(column.name)}" for column in columns]
        images = now.where(condition) if (condition := _plain_condition(key, to, schema)) else now
        images = images.selectExpr(*texts)
        match = _matched([quote(name) for name in key.columns], key)
        wanted = self._local(to)
        images = images.selectExpr("*", f"{match} as `#match`").join(wanted, "#match", "left_semi").drop("#match")
        return [_padded(line.asDict(), schema) for line in images.collect()]

    def changes(self, key: ForeignKey, to: Collection[str], rows: Collection[RowKey]) -> Iterable[Change]:
        """The changes of these rows, and of those that refer to any of these before or after."""
        if key.child not in self.changed:
            return []
        identity = _identity(self.schemas[key.child])
        texts = []
        for image in ("before", "after"):
            texts.append(f"concat('f', {_matched([f'{image}[{literal(name)}]' for name in key.columns], key)})")
            texts.append(f"concat('k', to_json(array({', '.join(f'{image}[{literal(name)}]' for name in identity)})))")
        wanted = self._local([*(f"f{text}" for text in to), *(f"k{key_text(row)}" for row in rows)])
        every = self.batch.where(f"{_of_table(key.child)} and op in {_listed((*_ROWS, Operation.TRUNCATE))}")
        emptied = every.where(f"op = '{Operation.TRUNCATE}'")
        matched = every.selectExpr("*", f"explode(array_compact(array({', '.join(texts)}))) as `#match`")
        matched = matched.join(wanted, "#match", "left_semi").drop("#match").dropDuplicates(["position"])
        return self._changes(matched.unionByName(emptied), ["before", "after"])

    def facts(self, positions: Collection[str]) -> dict[str, Cause]:
        """What changes at some positions say beside their images."""
        if not positions:
            return {}
        rows = self.batch.where(f"op in {_listed(_CHANGED)}")
        rows = rows.join(self._local(positions, "position"), "position", "left_semi").selectExpr(
            "position",
            "unix_micros(event_time) as event_time",
            "unix_micros(capture_time) as capture_time",
            "transaction.id as transaction",
            "source",
        )
        return {
            line["position"]: Cause(
                line["event_time"], line["capture_time"], line["transaction"], dict(line["source"] or {})
            )
            for line in rows.collect()
        }

    def _local(self, texts: Iterable[str], name: str = "#match") -> DataFrame:
        from pyspark.sql import functions as sf

        return sf.broadcast(local_rows(self._spark, [(text,) for text in sorted(texts)], f"{quote(name)} string"))

    def _changes(self, rows: DataFrame, images: Sequence[str]) -> list[Change]:
        changes = rows.selectExpr(
            "position",
            "coalesce(table.database, '') as d",
            "coalesce(table.schema, '') as s",
            "coalesce(table.name, '') as n",
            "op",
            *images,
            "source['foreign_key_checks'] is null as checked",
        )
        return [
            Change(row["position"], TableId(row["d"], row["s"], row["n"]), row["op"], row["before"], row["after"],
                   row["checked"])
            for row in changes.collect()
        ]  # fmt: skip


def _columns(keys: Sequence[ForeignKey], table: TableId) -> list[str]:
    return [name for key in keys if key.child == table for name in key.columns]


def _of_table(table: TableId) -> str:
    parts = [("database", table.database), ("schema", table.schema), ("name", table.name)]
    return " and ".join(f"coalesce(table.{part}, '') = {literal(text)}" for part, text in parts)


def _listed(operations: Iterable[Operation]) -> str:
    return f"({', '.join(literal(op.value) for op in operations)})"


def _matched(texts: Sequence[str], key: ForeignKey) -> str:
    """Spark SQL for `ForeignKey.of_child` of canonical texts; null where one of them is."""
    compare: Mapping[str, Callable[[str], str]] = {
        "": lambda text: text,
        "p": lambda text: f"rtrim({text})",
        "c": lambda text: f"lower(rtrim({text}))",
    }
    compared = [compare[match](text) for text, match in zip(texts, key.matches, strict=True)]
    known = " and ".join(f"{text} is not null" for text in texts)
    return f"if({known}, to_json(array({', '.join(compared)})), null)"


def _canonical(column: Column) -> str:
    kind = column.logical.spark_type
    return canonical_text(f"cast({quote(column.name)} as {kind})", column)


def _plain_condition(key: ForeignKey, to: Collection[str], schema: TableSchema) -> str:
    """Spark SQL by which the sink can leave files or rows out before they are read; empty where there is none."""
    column = schema.column(key.columns[0])
    kind = column.logical.spark_type
    if len(key.columns) != 1 or key.matches[0] or len(to) > _MOST_VALUES or not kind.startswith(_PLAIN):
        return ""
    values = (json.loads(text)[0] for text in sorted(to))
    return f"{quote(column.name)} in ({', '.join(f'cast({literal(value)} as {kind})' for value in values)})"


def _padded(image: dict[str, str | None], schema: TableSchema) -> Image:
    """The image with times of a day to the digits of their column, which a database may have left out."""
    for column in schema.columns:
        text, digits = image.get(column.name), column.logical.digits
        if text is not None and column.logical.kind == "time" and digits:
            whole, _, fraction = text.partition(".")
            image[column.name] = f"{whole}.{fraction.ljust(digits, '0')}"
    return image
