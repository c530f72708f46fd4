"""One table of a database that mirrors a source table: who owns it, how it gets its structure, how a batch gets in.

The structure comes before the data of a batch and may be repeated without harm. The data of a batch and its number are
one transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from headrace import faultpoints
from headrace.apply import no_order
from headrace.apply.column_names import Step, renames_in_order
from headrace.changes.table import Column
from headrace.changes.types import LogicalType
from headrace.errors import SchemaError, SinkError
from headrace.sinks.base import BatchId, LastBatch
from headrace.sinks.evolution import KEEPING, RENAMING, Evolution, TargetColumn, evolution, key_before, known_names
from headrace.sinks.jdbc.database import Database, TargetSchema
from headrace.sinks.jdbc.dialect import BATCH_OFFSETS, FORMAT_VERSION, POSITION, Mirror, TableName, holds
from headrace.versions import require_readable

_KEY_NAME = re.compile(r'"((?:[^"]|"")*)"')
_NEWEST_FORMAT = 1
_AWAY = "Move the target away and take a new snapshot."


class LateChanges(Exception):
    """Changes that are no newer than the target's rows got into others of the batch; nothing of it is in the target."""


@dataclass(frozen=True)
class TargetProgress:
    """What the progress table says of a target: who writes it, and the last batch that it has.

    Args:
        owner: whose it is.
        batch: the batch's number; None before the first.
        source_table: what the target mirrors.
        key_columns: by which it is kept.
        offsets: number, hash of the offsets and sink of a batch, apart by blanks; it counts where the number is
            `batch`, which an earlier release raises alone.
        format_version: the version of the target's layout; None for 1.
    """

    owner: str
    batch: int | None
    source_table: str
    key_columns: str
    offsets: str | None = None
    format_version: int | None = None

    def covers(self, batch: BatchId, index: str) -> bool:
        """Whether the target has a batch; see `LastBatch`."""
        if self.batch is None:
            return False
        number, hash, sink = (*(self.offsets or "").split(" "), "", "")[:3]
        if number != str(self.batch):
            return LastBatch(self.batch).covers(batch, index)
        # What another sink of the pipeline wrote says nothing of this one's batch.
        other = sink and batch.sink and sink != batch.sink
        return not other and LastBatch(self.batch, hash).covers(batch, index)


@dataclass(frozen=True)
class MirrorPlan:
    """What has to be done to a target before a batch's data. Nothing was done yet.

    Args:
        mirror: the target.
        exists: whether the table is there.
        has_schema: whether the schema is there that it lies in.
        progress: what the progress table says of it; None where it says nothing.
        add: columns to add.
        widen: columns to give a wider type.
        drop: columns of the target to drop.
        rename: columns of the target and their new names, in order; after the drops.
        key: the key columns as they have to stand in the progress table, where only names change; empty for no change.
        claim: whether it must be written down whose target it is.
        done: whether the target has the batch already.
    """

    mirror: Mirror
    exists: bool
    has_schema: bool
    progress: TargetProgress | None
    add: tuple[Column, ...] = ()
    widen: tuple[Column, ...] = ()
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    key: str = ""
    claim: bool = False
    done: bool = False


@dataclass(frozen=True)
class StagedBatch:
    """What is to be applied.

    Args:
        labels: which rows of the staging table count.
        rows: how many there are of them.
        truncate_at: position of the last truncate; older rows of the target go.
        partial: some row may lack columns, whose values in the target are kept.
        insert_partial: whether null may stand for what is not known.
        late: changes that are no newer than the target's rows may be among those that make a row.
        deletes: some row is a delete.
        decoded: some row comes from a message, whose position compares in its sequence only.
    """

    labels: tuple[str, ...] = ()
    rows: int = 0
    truncate_at: str | None = None
    partial: bool = False
    insert_partial: bool = False
    late: bool = False
    deletes: bool = True
    decoded: bool = False


class TargetTables:
    """The mirrors in one database.

    Args:
        database: where they are.
        progress: the table that says which batch each has.
    """

    def __init__(self, database: Database, progress: TableName) -> None:
        self.database = database
        self.progress = progress
        self._told_offsets = False

    def plan(
        self,
        connection: Any,
        mirror: Mirror,
        batch: BatchId,
        *,
        takeover: bool,
        behavior: str = "add",
        steps: tuple[Step, ...] = (),
    ) -> MirrorPlan:
        """Compare a target with the source's structure. Changes nothing.

        Args:
            connection: an open connection.
            mirror: the target. Where its source has no columns, only what `steps` says is planned.
            batch: who writes.
            takeover: whether the target may be another's.
            behavior: what to do when schemas differ (see `evolution`).
            steps: what is known to have happened to the names of the source's columns.

        Raises:
            SinkError: another pipeline or checkpoint, or another source table, has this target.
            SchemaError: the target can't carry the structure.
        """
        database, source = self.database, mirror.source
        database.dialect.refuse_names(mirror)
        has_schema = database.has_schema(connection, mirror.name.schema)
        schema = database.target_schema(connection, mirror.name)
        progress = self.read(connection, mirror.name)
        exists = bool(schema.types)
        known = self._known_names(mirror, schema.types, () if behavior in KEEPING else steps)
        key = key_before(source.key, known)
        if not source.columns:
            if not known or progress is None or behavior not in RENAMING:
                return MirrorPlan(mirror, exists, has_schema, progress)
            self._refuse_stranger(mirror, progress, batch.owner, takeover, {progress.key_columns})
            plan = _names_only(mirror, has_schema, progress, known, folded=database.dialect.folded)
            new = tuple(Column(name, index, LogicalType("string")) for index, (_, name) in enumerate(plan.rename))
            database.dialect.refuse_names(replace(mirror, source=replace(source, columns=new)))
            return plan
        if exists or progress is not None:
            self._refuse_stranger(mirror, progress, batch.owner, takeover, {key_names(source.key), key_names(key)})
        claim = progress is None or (progress.owner, progress.key_columns) != (batch.owner, key_names(source.key))
        if not exists:
            return MirrorPlan(mirror, False, has_schema, progress, claim=claim)
        self._refuse_other_key(mirror, schema, key)
        changes = self._differences(mirror, schema.types, behavior, steps)
        columns = {column.name: column for column in (*source.columns, POSITION)}
        columns[mirror.position_column] = POSITION
        kept = tuple(column for column in source.columns if column.name not in changes.left_out)
        mirror = replace(mirror, source=replace(source, columns=kept))
        add = tuple(columns[column.name] for column in changes.add)
        widen = tuple(columns[column.name] for column in changes.widen)
        done = not claim and progress is not None and progress.covers(batch, self._location(mirror.name))
        return MirrorPlan(
            mirror, True, has_schema, progress, add, widen, changes.drop, changes.rename, claim=claim, done=done
        )

    def read(self, connection: Any, name: TableName) -> TargetProgress | None:
        """What the progress table says of a target.

        Raises:
            NewerRelease: a later release made the target, or changed it.
        """
        columns = self.database.target_schema(connection, self.progress).types
        if not columns:
            return None
        self._told_offsets = BATCH_OFFSETS in columns
        later = [name if name in columns else "NULL" for name in (BATCH_OFFSETS, FORMAT_VERSION)]
        lines = self.database.ask(
            connection,
            f"SELECT owner, batch, source_table, key_columns, {', '.join(later)} "
            f"FROM {self.database.dialect.table(self.progress)} WHERE target = %s",
            (self.database.dialect.table(name),),
        )
        if not lines:
            return None
        newest = TargetProgress(*lines[0])
        require_readable(
            newest.format_version,
            _NEWEST_FORMAT,
            what=f"The table {self._location(name)}",
            remedy="Write to it with that release, or choose another target.",
        )
        return newest

    def begin(self, connection: Any, plans: Sequence[MirrorPlan], batch: BatchId) -> None:
        """Do first, for all targets of a batch, what writers side by side would get into each other's way with.

        That is the progress table, schemas, and writing down whose the targets are. Repeatable. A table without an
        owner is a stranger's, so owners come before tables.
        """
        database, dialect = self.database, self.database.dialect
        schemas = {plan.mirror.name.schema for plan in plans if not plan.has_schema}
        claims = [plan.mirror for plan in plans if plan.claim]
        if claims and not database.target_schema(connection, self.progress).types:
            if not database.has_schema(connection, self.progress.schema):
                schemas.add(self.progress.schema)
            database.run(connection, map(dialect.create_schema, sorted(schemas)))
            database.run(connection, [dialect.create_progress(self.progress)])
        else:
            database.run(connection, map(dialect.create_schema, sorted(schemas)))
            if plans and not self._told_offsets:
                self._tell_offsets(connection)
        progress = dialect.table(self.progress)
        for mirror in claims:
            target = dialect.table(mirror.name)
            database.run(connection, [f"DELETE FROM {progress} WHERE target = %s"], (target,))
            database.run(
                connection,
                [f"INSERT INTO {progress} (target, owner, source_table, key_columns) VALUES (%s, %s, %s, %s)"],
                (target, batch.owner, mirror.source.id.full_path, key_names(mirror.source.key)),
            )
        connection.commit()

    def _tell_offsets(self, connection: Any) -> None:
        """Give a progress table of an earlier release its column for offsets."""
        if BATCH_OFFSETS in self.database.target_schema(connection, self.progress).types:
            return
        statement = self.database.dialect.add_batch_offsets(self.progress)
        try:
            self.database.run(connection, [statement])
        except self.database.troubles() as failure:
            connection.rollback()
            raise SinkError(
                f"The progress table {self._location(self.progress)} lacks the column '{BATCH_OFFSETS}', and the login "
                "may not add it.",
                remedy=f"Let its owner run: {statement}.",
            ) from failure

    def _location(self, name: TableName) -> str:
        return f"{name} of {self.database.address}"

    def prepare(self, connection: Any, plan: MirrorPlan) -> None:
        """Create or evolve the target as planned. Repeatable; no data is touched."""
        database, mirror = self.database, plan.mirror
        dialect = database.dialect
        if not plan.exists:
            database.run(connection, dialect.create_table(mirror))
        if plan.key:
            database.run(
                connection,
                [f"UPDATE {dialect.table(self.progress)} SET key_columns = %s WHERE target = %s"],
                (plan.key, dialect.table(mirror.name)),
            )
        for name in plan.drop:
            database.run(connection, [dialect.drop_column(mirror, name)])
        for old, new in plan.rename:
            database.run(connection, [dialect.rename_column(mirror, old, new)])
            faultpoints.reach("sink.jdbc.renamed")
        for column in plan.widen:
            database.run(connection, [dialect.widen_column(mirror, column)])
        for column in plan.add:
            database.run(connection, dialect.add_column(mirror, column))
        connection.commit()

    def write(
        self,
        connection: Any,
        plan: MirrorPlan,
        batch: BatchId,
        load: Callable[[], StagedBatch] | None,
        *,
        prepared: Callable[[], None] | None = None,
    ) -> bool:
        """Bring a target up to a batch: its structure, the staging table, and the one transaction of its data.

        A staging table that a failure left behind is dropped by the next attempt.

        Args:
            connection: an open connection.
            plan: what `plan` said, after `begin`.
            batch: which batch it is.
            load: fills the staging table, by whatever connections, and commits there. None where the batch holds no
                data of this table.
            prepared: called between the structure and the data; repeatable.

        Returns:
            Whether the target's data changed; false when it had the batch already.
        """
        if plan.done:
            # The attempt that committed may not have come this far.
            self.drop_stage(connection, plan.mirror)
            return False
        self.prepare(connection, plan)
        if prepared is not None:
            prepared()
        if load is None:
            return False
        self.create_stage(connection, plan.mirror)
        staged = load()
        faultpoints.reach("sink.jdbc.staged")
        changed = self.apply(connection, plan.mirror, batch, staged)
        self.drop_stage(connection, plan.mirror)
        return changed

    def create_stage(self, connection: Any, mirror: Mirror) -> None:
        """Create an empty staging table in place of the old one."""
        self.database.run(connection, self.database.dialect.create_stage(mirror))
        connection.commit()

    def drop_stage(self, connection: Any, mirror: Mirror) -> None:
        self.database.run(connection, [self.database.dialect.drop_stage(mirror)])
        connection.commit()

    def give(self, connection: Any, mirror: Mirror, labels: Sequence[str], names: Sequence[str], before: str) -> None:
        """Give columns of the rows that are older than a position the values of the one staged row. Repeatable.

        Args:
            connection: an open connection.
            mirror: the target.
            labels: that of the staged row.
            names: the columns.
            before: the position.
        """
        self.database.run(connection, [self.database.dialect.give(mirror, labels, names, before)])
        connection.commit()

    def apply(self, connection: Any, mirror: Mirror, batch: BatchId, staged: StagedBatch) -> bool:
        """Bring the target up to the staged batch and write down its number, in one transaction.

        The line of the progress table is locked first, so that two writers come one after the other, and the second
        finds the batch done.

        Returns:
            Whether the target changed; false when it had the batch already.

        Raises:
            SinkError: the target belongs to somebody else by now, another writer took the staging table away, or a key
                holds NULL.
            SchemaError: a change does not carry all columns, and the target has no row of its key.
            LateChanges: the batch has to be folded by what the target has.
        """
        database, dialect = self.database, self.database.dialect
        progress, target = dialect.table(self.progress), dialect.table(mirror.name)
        lines = database.ask(
            connection,
            f"SELECT owner, batch, source_table, key_columns, {BATCH_OFFSETS} FROM {progress} "
            "WHERE target = %s FOR UPDATE",
            (target,),
        )
        if not lines or lines[0][0] != batch.owner:
            connection.rollback()
            raise self._not_owned(mirror.name, lines[0][0] if lines else None, batch.owner)
        try:
            covered = TargetProgress(*lines[0]).covers(batch, self._location(mirror.name))
        except SinkError:
            connection.rollback()
            raise
        if covered:
            connection.rollback()
            return False
        self._refuse_lost(connection, mirror, staged)
        if staged.decoded:
            self._refuse_disorder(connection, mirror, staged)
        if staged.truncate_at is not None:
            database.run(connection, [dialect.truncate(mirror, staged.truncate_at)])
        if mirror.source.key:
            self._refuse_null_key(connection, mirror, staged.labels)
            if staged.late and self.database.ask(connection, dialect.count_late(mirror, staged.labels))[0][0]:
                connection.rollback()
                raise LateChanges
            if staged.partial and not staged.insert_partial:
                self._refuse_missing(connection, mirror, staged.labels)
            statements = dialect.apply_keyed(mirror, staged.labels, partial=staged.partial)
        else:
            statements = dialect.apply_keyless(mirror, staged.labels, deletes=staged.deletes)
        for statement in statements:
            faultpoints.reach("sink.jdbc.before_statement")
            database.run(connection, [statement])
        database.run(
            connection,
            [
                f"UPDATE {progress} SET batch = %s, {BATCH_OFFSETS} = %s, written_at = CURRENT_TIMESTAMP "
                "WHERE target = %s"
            ],
            (batch.number, f"{batch.number} {batch.offsets} {batch.sink}".strip(), target),
        )
        faultpoints.reach("sink.jdbc.before_commit")
        connection.commit()
        faultpoints.reach("sink.jdbc.after_commit")
        return True

    def _refuse_lost(self, connection: Any, mirror: Mirror, staged: StagedBatch) -> None:
        """Stop where staged rows are gone: a second writer of the same table recreates the staging table.

        Having looked, the transaction keeps the table from being dropped until it ends.
        """
        ((staged_rows,),) = self.database.ask(connection, self.database.dialect.count_staged(mirror, staged.labels))
        if staged_rows != staged.rows:
            connection.rollback()
            raise SinkError(
                f"Rows on their way to {mirror.name} of {self.database.address} were taken away by another writer; "
                "nothing of the batch is in the table.",
                remedy="Make sure that the pipeline runs only once. You can repeat the batch.",
            )

    def _refuse_null_key(self, connection: Any, mirror: Mirror, labels: Sequence[str]) -> None:
        """Stop at a row whose key holds NULL: no primary key of a database takes it."""
        nullable = [column.name for column in mirror.source.key_columns if column.nullable]
        if not nullable:
            return
        ((null_keys,),) = self.database.ask(connection, self.database.dialect.count_null_keys(mirror, labels))
        if null_keys:
            connection.rollback()
            raise SinkError(
                f"A row of table {mirror.source.id} has NULL in its key ({', '.join(nullable)}), which the primary key "
                f"of {mirror.name} of {self.database.address} can't hold.",
                remedy="Give the table a primary key, name other columns with 'message_key_columns', or keep it in "
                "Delta or Iceberg.",
            )

    def _refuse_disorder(self, connection: Any, mirror: Mirror, staged: StagedBatch) -> None:
        """Stop where the target has changes of another sequence (`headrace.apply.sequence`)."""
        dialect, doubtful = self.database.dialect, 0
        if mirror.source.key:
            ((doubtful,),) = self.database.ask(connection, dialect.count_disordered(mirror, staged.labels))
        if staged.truncate_at is not None and not doubtful:
            ((doubtful,),) = self.database.ask(connection, dialect.count_unclear(mirror, staged.truncate_at))
        if doubtful:
            connection.rollback()
            raise no_order(str(mirror.source.id), f"table {mirror.name} of {self.database.address}")

    def _refuse_missing(self, connection: Any, mirror: Mirror, labels: Sequence[str]) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(self.database.dialect.count_missing(mirror, labels))
            (missing,) = cursor.fetchone()
        if missing:
            connection.rollback()
            raise SchemaError(
                f"A change of table {mirror.source.id} does not carry all columns, "
                f"and {mirror.name} of {self.database.address} has no row of its key.",
                remedy="Take a new snapshot of the table, or set the sink's option 'missing_row' to 'insert'.",
            )

    def _refuse_stranger(
        self, mirror: Mirror, progress: TargetProgress | None, owner: str, takeover: bool, keys: set[str]
    ) -> None:
        source, where = mirror.source, f"{mirror.name} of {self.database.address}"
        if progress is not None and progress.source_table != source.id.full_path:
            raise SinkError(
                f"The table {where} mirrors {progress.source_table}, not {source.id.full_path}.",
                remedy="Give each source table its own target (the sink's option 'table_name').",
            )
        if progress is not None and progress.key_columns not in keys:
            raise SchemaError(
                f"The key of table {source.id} is ({key_names(source.key)}) now, but {where} "
                f"has the key ({progress.key_columns}).",
                remedy=_AWAY,
            )
        current = progress.owner if progress is not None else None
        if current != owner and not takeover:
            raise self._not_owned(mirror.name, current, owner)

    def _not_owned(self, name: TableName, current: str | None, owner: str) -> SinkError:
        whose = f"to the pipeline and checkpoint '{current}'" if current else "to no Headrace pipeline"
        return SinkError(
            f"The table {name} of {self.database.address} belongs {whose}, not to '{owner}'.",
            remedy="Set the sink's option 'takeover' to true if it may be taken over, or choose another 'table_name'.",
        )

    def _refuse_other_key(self, mirror: Mirror, schema: TargetSchema, key: tuple[str, ...]) -> None:
        where = f"{mirror.name} of {self.database.address}"
        if mirror.source.key and schema.key != frozenset(key):
            raise SchemaError(
                f"The primary key of {where} is ({', '.join(sorted(schema.key))}), but the key of table "
                f"{mirror.source.id} is ({', '.join(mirror.source.key)}).",
                remedy=_AWAY,
            )
        if schema.other_unique:
            raise SchemaError(
                f"The table {where} has a unique index beside its key ({schema.other_unique[0]}), by which the "
                "database could take one row for another.",
                remedy="Make the index non-unique.",
            )

    def _known_names(self, mirror: Mirror, have: Mapping[str, str], steps: tuple[Step, ...]) -> dict[str, str | None]:
        """What columns of the target are called now, as far as statements say it."""
        return known_names(
            have,
            [column.name for column in mirror.source.columns] or None,
            own_columns=frozenset({mirror.position_column}),
            steps=steps,
            source=str(mirror.source.id),
            folded=self.database.dialect.folded,
        )

    def _differences(
        self, mirror: Mirror, have: Mapping[str, str], behavior: str, steps: tuple[Step, ...]
    ) -> Evolution:
        dialect, source = self.database.dialect, mirror.source
        types = dialect.column_types(source)
        wanted = [TargetColumn(column.name, types[column.name]) for column in source.columns]
        folded = dialect.folded
        # Ours is made with a collation, which catalogs tell apart from the type: that it is there is enough.
        position_type = {folded(name): kind for name, kind in have.items()}.get(
            folded(mirror.position_column), types[""]
        )
        return evolution(
            have,
            (*wanted, TargetColumn(mirror.position_column, position_type)),
            key=source.key,
            own_columns=frozenset({mirror.position_column}),
            behavior=behavior,
            widens=lambda old, new: holds(new, old),
            source=str(source.id),
            target=f"{mirror.name} of {self.database.address}",
            holds=holds,
            folded=folded,
            can_cast=False,
            steps=steps,
        )


def key_names(key: tuple[str, ...]) -> str:
    """The key columns as they stand in the progress table."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in key)


def names_in(key_columns: str) -> tuple[str, ...]:
    """The key columns that the progress table tells."""
    return tuple(name.replace('""', '"') for name in _KEY_NAME.findall(key_columns))


def _names_only(
    mirror: Mirror,
    has_schema: bool,
    progress: TargetProgress,
    known: Mapping[str, str | None],
    *,
    folded: Callable[[str], str],
) -> MirrorPlan:
    """What statements about names mean for a target, without more; columns go only where another gets their name."""
    renames = {old: new for old, new in known.items() if new is not None}
    taken = {folded(new) for new in renames.values()}
    drop = tuple(name for name, new in known.items() if new is None and folded(name) in taken)
    key = tuple(name.replace('""', '"') for name in _KEY_NAME.findall(progress.key_columns))
    now = key_names(tuple(renames.get(name, name) for name in key))
    return MirrorPlan(
        mirror,
        True,
        has_schema,
        progress,
        drop=drop,
        rename=tuple(renames_in_order(renames)),
        key="" if now == progress.key_columns else now,
    )
