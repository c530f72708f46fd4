"""The jdbc sink: one table of a PostgreSQL, MariaDB or MySQL database per source table, kept equal to it."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import uuid4

from headrace import faultpoints
from headrace.apply import (
    TableProfile,
    as_newest,
    carried,
    fold,
    fold_keyless,
    in_one_task,
    no_order,
    parted,
    profile,
    sequenced,
    upserts,
)
from headrace.changes.dataset import Dataset
from headrace.changes.one_table import in_turn, work_on
from headrace.changes.refusal import StopReason
from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.typed import presence_in_order, quote
from headrace.changes.types import LogicalType
from headrace.errors import HeadraceError, OptionError, SchemaError, SinkError
from headrace.passwords import PasswordSettings
from headrace.permissions import Permissions
from headrace.settings import option
from headrace.sinks.base import BatchId, Sink, TargetPreview
from headrace.sinks.java_failures import unknown_failure
from headrace.sinks.jdbc.database import Address, Database, parse_address
from headrace.sinks.jdbc.dialect import Mirror, TableName
from headrace.sinks.jdbc.mariadb import MariaDb
from headrace.sinks.jdbc.postgresql import Postgres
from headrace.sinks.jdbc.reading import as_compared, mirrored_rows
from headrace.sinks.jdbc.target import LateChanges, MirrorPlan, StagedBatch, TargetTables, names_in
from headrace.sinks.misfits import KeptValues, refuse_misfit
from headrace.sinks.table_sink import WRONG_VALUE, TableSettings, given_steps, old_value, rows_left_by, side_by_side

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_DATABASES: dict[str, Callable[[Address], Database]] = {"postgresql": Postgres, "mariadb": MariaDb}
_ATTEMPT_DDL = "label string, rows bigint, problem string, remedy string"
_MOST_KEYS = 500
_PLACEHOLDERS = {"database", "schema", "table"}


class JdbcLocation(PasswordSettings):
    """Which database, and where the mirrors lie in it."""

    url: str = option(
        "The database, as `postgresql://host:port/database` or `mariadb://host:port/database` (`mysql://` means "
        "the same), optionally with `jdbc:` in front. Driver settings may follow after `?` (`sslmode=require` for "
        "PostgreSQL, `ssl_ca=/path` for MariaDB); a password may not.",
    )
    user: str | None = option(
        "Who logs in.",
        default=None,
    )
    password: str | None = option(
        "The user's password.",
        default=None,
        may_be_empty=True,
    )
    table_name: str | None = option(
        "The mirror of a source table: a name, or schema and name separated by a dot, in which `{database}`, "
        "`{schema}` and `{table}` stand for the source's. Default: `{schema}.{table}` in PostgreSQL, and "
        "`{table}` in MariaDB, where a schema is a database. A missing schema is created.",
        default=None,
    )
    progress_table: str = option(
        "The table with the owner and the last batch of each target, optionally with a schema in front.",
        default="_headrace_progress",
    )


class JdbcSettings(JdbcLocation, TableSettings):
    max_connections: int = option(
        "How many connections load one table's rows into its staging table in parallel.",
        default=4,
        minimum=1,
    )


class JdbcSink(Sink):
    """Mirrors source tables as tables of a PostgreSQL, MariaDB or MySQL database, exactly once.

    A target is created with the source's structure (typed, keyed, with comments; only keys are NOT NULL) and one column
    more, the position of the row's last change. What happens when the source's
    structure changes is an option. A text that reads like a JDBC URL says where the database is, but
    the connection is a Python driver's: psycopg or PyMySQL, which must be installed on the executors too.

    Order: per key the change with the last position wins, inside a batch and against what the target holds.
    Idempotence: executors load the folded batch into a staging table (`_headrace_stage_...`, beside the target); the
    driver then applies it and writes down the batch's number in one transaction. A replayed batch finds its number and
    changes nothing, and whatever stops the program, a table has the whole batch or nothing of it. Structure comes in
    transactions of its own before the data and is repeatable. Source of truth for progress is Spark's checkpoint; the
    progress table only refuses what a target already has.
    """

    name: ClassVar[str] = "jdbc"
    examples: ClassVar[Mapping[str, str]] = {"url": "postgresql://localhost:5432/sales", "user": "headrace"}
    offered: ClassVar[tuple[str, ...]] = ("table_name", "schema_change_behavior")
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"
    reads_back: ClassVar[Literal["no", "snapshot", "live"]] = "live"
    settings: JdbcSettings

    def __init__(self, settings: JdbcSettings) -> None:
        super().__init__(settings)
        self._nulled: Mapping[TableId, Mapping[str, int]] = {}
        address = parse_address(settings.url, settings.user, settings.password, settings.password_command)
        self.database = _DATABASES[address.kind](address)
        dialect = self.database.dialect
        self._kept = KeptValues(settings.unrepresentable, dialect.title, dialect.lacks)
        self._name_parts = _template(settings.table_name or self.database.default_table_name, _PLACEHOLDERS)
        self._progress_parts = _template(settings.progress_table, set())

    def check(self) -> None:
        """Whether the driver is installed and the database lets us in. Runs in the driver; creates nothing.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
            SinkError: the driver is not installed.
        """
        with closing(self.database.connect()) as connection:
            self.database.default_schema(connection)

    def reach(self) -> str:
        """As `check`: it logs in."""
        self.check()
        return "The database accepts the login."

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions:
        """Whether the login may make, change and fill the mirrors, their staging tables and the progress table.

        The database is asked; nothing is made.
        """
        with closing(self.database.connect()) as connection:
            try:
                default = self.database.default_schema(connection)
                mirrors = [_named(self._name_parts, default, id) for id in tables]
                progress = _named(self._progress_parts, default, TableId("", "", ""))
                missing = self.database.missing_permissions(connection, mirrors, progress)
            except self.database.troubles() as failure:
                raise SinkError(
                    f"{self.database.address} can't report its login's permissions ({type(failure).__name__}).",
                    remedy="See the database's log.",
                ) from None
        if missing is None:
            return Permissions(
                "MySQL does not report the login's permissions; the first write shows them.", known=False
            )
        of = "1 table" if len(tables) == 1 else f"{len(tables):,} tables"
        what = f"to write {of}" if tables else "to begin with; which tables it would write is not known beforehand"
        return Permissions(f"The login has every permission {what}.", tuple(missing))

    def preview(self, schema: TableSchema, batch: BatchId, spark: SparkSession | None) -> TargetPreview:
        """Whether the mirror is there, and how its structure would change; the database is asked without Spark."""
        schema = self._kept.schema(schema)
        with self.database.connected(schema.id, TableName("", schema.id.path)) as connection:
            default = self.database.default_schema(connection)
            targets = TargetTables(self.database, _named(self._progress_parts, default, schema.id))
            mirror = Mirror(_named(self._name_parts, default, schema.id), schema, self.settings.position_column)
            takeover, behavior = self.settings.takeover, self.settings.schema_change_behavior
            steps = given_steps(self.settings)(schema.id)
            plan = targets.plan(connection, mirror, batch, takeover=takeover, behavior=behavior, steps=steps)
            connection.rollback()
        changes = (
            *(f"renames column '{old}' to '{new}'" for old, new in plan.rename),
            *(f"adds column '{column.name}'" for column in plan.add),
            *(f"widens column '{column.name}'" for column in plan.widen),
            *(f"drops column '{name}'" for name in plan.drop),
        )
        return TargetPreview(str(mirror.name), plan.exists, changes)

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        """The database, or a table's name in it, whose default schema is not asked for."""
        address = self.database.address
        host = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}.get(address.host.lower(), address.host.lower())
        root = f"{address.kind}://{host}:{address.port}/{address.database}"
        if table is None:
            return frozenset([root])
        default = {"postgresql": "public"}.get(address.kind, address.database)
        name = _named(self._name_parts, default, table)
        text = f"{root}/{name.schema}/{name.name}"
        return frozenset([text.lower() if self.database.dialect.folds_names else text])

    def dataset(self, table: TableId, topic: str | None = None) -> Dataset | None:
        address = self.database.address
        name = _named(self._name_parts, "public", table)
        if address.kind == "postgresql":
            return Dataset(f"postgres://{address.host}:{address.port}", f"{address.database}.{name.schema}.{name.name}")
        database = _named(self._name_parts, address.database, table).schema
        return Dataset(f"mysql://{address.host}:{address.port}", f"{database}.{name.name}")

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Bring the mirrors of all tables in the batch up to its end: tables side by side, each in its own transaction.

        When one table fails, others of the batch may be committed; a retry of the batch finds them done and does the
        rest.

        Raises:
            ConnectError: the server can't be reached or refuses the login.
            SinkError: a target belongs to another pipeline or checkpoint, or can't be written.
            SchemaError: a target can't carry the structure or a change; nothing of the batch is in that table.
        """
        spark = rows.sparkSession
        rows = in_one_task(self.sequenced(rows))
        tables = [self._kept.profile(table) for table in profile(rows, given_steps(self.settings))]
        if not tables:
            return
        targets, works = self._plan_targets(tables, batch)
        workers = self.settings.max_parallel_tables
        self._nulled = self._kept.nulled(rows, tables)
        with parted(rows, tables) as rows_of:

            def bring(work: tuple[TableProfile, MirrorPlan]) -> None:
                with work_on(work[0].id):
                    self._bring(rows_of(work[0]), *work, targets, batch)

            side_by_side(spark, works, bring, workers=workers)

    def nulled(self) -> Mapping[TableId, Mapping[str, int]]:
        """By `unrepresentable: null`."""
        return self._nulled

    @property
    def keeps_tables(self) -> bool:
        return True

    @property
    def takes_old_values(self) -> bool:
        return True

    def sequenced(self, rows: DataFrame, epochs: Mapping[str, str] | None = None) -> DataFrame:
        """The rows with positions that say their sequence (`headrace.apply.sequence`)."""
        return sequenced(rows, self.settings.sequence_by, epochs)

    def now(self, spark: SparkSession, schema: TableSchema) -> DataFrame | None:
        """The rows of a source table's mirror, without our column; None where there is no mirror. Lazy."""
        with closing(self.database.connect()) as connection:
            name = _named(self._name_parts, self.database.default_schema(connection), schema.id)
        return mirrored_rows(spark, self.database, name, self._kept.schema(schema))

    def expected(self, rows: DataFrame, table: TableProfile) -> DataFrame:
        """The rows that are true after the last change, with values as the database writes them."""
        table = self._kept.profile(table)
        values = {c.name: as_compared(f"row.{quote(c.name)}", c) for c in table.schema.columns}
        return rows_left_by(rows, table).selectExpr(*(f"{value} as {quote(name)}" for name, value in values.items()))

    def _plan_targets(
        self, tables: Sequence[TableProfile], batch: BatchId
    ) -> tuple[TargetTables, list[tuple[TableProfile, MirrorPlan]]]:
        """Look at every target before the first is touched, then claim those that are new."""
        first = tables[0].id
        with self.database.connected(first, TableName("", first.path), alone=False) as connection:
            default = self.database.default_schema(connection)
            progress = _named(self._progress_parts, default, first)
            targets = TargetTables(self.database, progress)
            names = {table.id: _named(self._name_parts, default, table.id) for table in tables}
            folds = self.database.dialect.folds_names
            _refuse_shared_targets([*names.values(), progress], folds=folds)
            takeover, behavior = self.settings.takeover, self.settings.schema_change_behavior

            def plan_target(table: TableProfile) -> tuple[TableProfile, MirrorPlan] | None:
                name = names[table.id]
                with work_on(table.id), self.database.explaining(table.id, name):
                    if table.key_unknown:
                        known = targets.read(connection, name)
                        if known is None:
                            # There is nothing to empty. The table is made when a row says what its key is.
                            return None
                        table = table.keyed_by(names_in(known.key_columns))
                    mirror = Mirror(name, table.schema, self.settings.position_column)
                    steps = table.steps
                    plan = targets.plan(connection, mirror, batch, takeover=takeover, behavior=behavior, steps=steps)
                    return table, plan

            def plan_target_apart(table: TableProfile) -> tuple[TableProfile, MirrorPlan] | None:
                try:
                    return plan_target(table)
                except HeadraceError:
                    # Nothing was written yet, and after a refusal PostgreSQL answers nothing else in the transaction.
                    connection.rollback()
                    raise

            works = [work for work in in_turn(tables, plan_target_apart) if work is not None]
            connection.rollback()
            targets.begin(connection, [plan for _, plan in works], batch)
        return targets, works

    def _bring(
        self, rows: DataFrame, table: TableProfile, plan: MirrorPlan, targets: TargetTables, batch: BatchId
    ) -> None:
        names = {column.name for column in plan.mirror.source.columns}
        table = table.selecting(names.__contains__).emptying

        def load(known: DataFrame | None = None) -> StagedBatch:
            labels, count = self._stage(rows, table, plan.mirror, known)
            partial = bool(table.schema.key) and table.partial
            return StagedBatch(
                labels=labels,
                rows=count,
                truncate_at=table.gone_before,
                partial=partial,
                insert_partial=self.settings.missing_row == "insert",
                late=partial and known is None,
                deletes=not table.inserts_only,
                decoded=table.decoded,
            )

        if not table.schema.columns and not plan.rename:
            return
        with self.database.connected(table.id, plan.mirror.name) as connection:
            vanished = plan.exists and table.truncate_at is not None
            wanted = load if table.size or vanished else None
            prepared = partial(self._give_old_values, connection, rows.sparkSession, table, plan.mirror, targets)
            try:
                targets.write(connection, plan, batch, wanted, prepared=prepared if plan.exists else None)
            except LateChanges:
                known = self._known(rows.sparkSession, plan.mirror)
                targets.write(connection, plan, batch, lambda: load(known))

    def _give_old_values(
        self, connection: Any, spark: SparkSession, table: TableProfile, mirror: Mirror, targets: TargetTables
    ) -> None:
        """Give the rows of the mirror the values that they have in columns which were added. Repeatable.

        The values come as those of changes do, by way of the staging table.
        """
        names = {column.name for column in mirror.source.columns}
        by_position: dict[str, set[str]] = {}
        for name, value in table.old_values.items():
            if value.before and name in names:
                by_position.setdefault(value.before, set()).add(name)
        if not by_position:
            return
        targets.create_stage(connection, mirror)
        for position, given in sorted(by_position.items()):
            texts = {name: table.old_values[name].text for name in given}
            cells = (old_value(texts.get(column.name), column, table) for column in mirror.source.columns)
            nothing = ("'v' as o", "'' as p", "cast(null as string) as m", "cast(null as string) as f")
            values = (f"{cell} as c{number}" for number, cell in enumerate(cells))
            row = spark.range(1).selectExpr(*nothing, "cast(null as bigint) as n", *values)
            with _explained(table, mirror):
                labels, _ = self._load(row.coalesce(1), mirror)
            targets.give(connection, mirror, labels, sorted(given), position)
        targets.drop_stage(connection, mirror)
        faultpoints.reach("sink.jdbc.old_values")

    def _known(self, spark: SparkSession, mirror: Mirror) -> DataFrame:
        """The keys of the mirror's rows and when these were changed last, as `fold` takes them."""
        ours = Column(mirror.position_column, len(mirror.source.columns) + 1, LogicalType("string"))
        columns = replace(mirror.source, columns=(*mirror.source.key_columns, ours))
        known_rows = mirrored_rows(spark, self.database, mirror.name, columns)
        assert known_rows is not None
        keys = (f"{quote(name)} as h{number}" for number, name in enumerate(mirror.source.key))
        return known_rows.selectExpr(*keys, f"{quote(ours.name)} as at")

    def _stage(
        self, rows: DataFrame, table: TableProfile, mirror: Mirror, known: DataFrame | None
    ) -> tuple[tuple[str, ...], int]:
        """Let executors load the folded rows; the labels of the attempts that succeeded, and how many rows they have.

        Raises:
            SchemaError: a value does not fit; found by Spark or by the database while it loads.
            SinkError: Spark or the database failed.
        """
        named = as_newest(rows, table)
        with _explained(table, mirror), carried(named, table, partial(self._standing, table, mirror)) as whole:
            folded = folded_rows(whole, table, known).coalesce(self.settings.max_connections)
            return self._load(folded, mirror)

    def _load(self, staged: DataFrame, mirror: Mirror) -> tuple[tuple[str, ...], int]:
        """Let executors load rows as the staging table has them, as `_stage` does."""
        attempts = staged.mapInArrow(_loading(self.database, mirror), _ATTEMPT_DDL).collect()
        for attempt in attempts:
            if attempt["problem"] is not None:
                raise SchemaError(attempt["problem"], remedy=attempt["remedy"])
        return tuple(attempt["label"] for attempt in attempts), sum(attempt["rows"] for attempt in attempts)

    def _standing(self, table: TableProfile, mirror: Mirror, keys: DataFrame) -> DataFrame | None:
        """The mirror's rows of these keys, and maybe others, as `carried` takes them."""
        ours = Column(mirror.position_column, len(mirror.source.columns) + 1, LogicalType("string"))
        columns = replace(mirror.source, columns=(*mirror.source.columns, ours))
        wanted = self._where(table, keys)
        standing = mirrored_rows(keys.sparkSession, self.database, mirror.name, columns, where=wanted)
        if standing is None or ours.name not in standing.columns:
            return None
        fields = ", ".join(quote(name) for name in standing.columns if name != ours.name)
        return standing.selectExpr(
            f"struct({fields}) as row", f"{quote(ours.name)} as since", "cast(null as string) as until"
        )

    def _where(self, table: TableProfile, keys: DataFrame) -> str:
        """SQL that is true of rows with one of these keys, where they are few and can be written; else empty."""
        first, dialect = table.schema.key_columns[0], self.database.dialect
        if first.logical.spark_type not in ("tinyint", "smallint", "int", "bigint", "string"):
            return ""
        hashes = {row["o0"] for row in keys.select("o0").distinct().limit(_MOST_KEYS + 1).collect()}
        if len(hashes) > _MOST_KEYS or None in hashes:
            return ""
        values = ", ".join(dialect.literal(key) if isinstance(key, str) else str(key) for key in sorted(hashes))
        return f"{dialect.quote(first.name)} IN ({values})"


@contextmanager
def _explained(table: TableProfile, mirror: Mirror) -> Iterator[None]:
    """Spark's failures as ours: what went wrong with which table, without any value of a cell."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        if StopReason.NO_ORDER in str(failure):
            raise no_order(str(table.id), f"table {mirror.name}") from failure
        refuse_misfit(failure)
        if any(kind in str(failure) for kind in WRONG_VALUE):
            raise SchemaError(
                f"A value of table {table.id} does not fit its column's type for the target {mirror.name}.",
                remedy="Compare the values with the source's column types; run with --debug to see Spark's message.",
            ) from failure
        raise unknown_failure(
            f"The changes of table {table.id} can't be loaded for {mirror.name}", failure
        ) from failure


def folded_rows(rows: DataFrame, table: TableProfile, known: DataFrame | None = None) -> DataFrame:
    """The folded changes of one table in the columns of the staging table, but its label: `o`, `p`, `m`, `f`, `n`,
    values.

    Lazy; a plain Spark DataFrame. `known` is as `fold` takes it.
    """
    if not table.schema.key:
        folded = fold_keyless(rows, table)
        ours = ["if(op = 'delete', 'd', 'i') as o", "position as p", "cast(null as string) as m"]
        ours += ["cast(null as string) as f", "occurrences as n"]
    else:
        folded = upserts(rows, table) if table.initial else fold(rows, table, known=known)
        rest = [column.name for column in table.schema.columns if column.name not in table.schema.key]
        says = f"array_join(transform({presence_in_order('present', rest)}, said -> if(said, '1', '0')), '')"
        mask = says if rest and table.partial else "null"
        ours = [
            "if(op = 'delete', 'd', if(whole, 'u', 'p')) as o",
            "position as p",
            f"cast({mask} as string) as m",
            f"cast({'since' if 'since' in folded.columns else 'null'} as string) as f",
            "cast(null as bigint) as n",
        ]
    # Own names again: the source may have a column `o`, and mapInArrow does not accept a name with a dot.
    values = [f"row.{quote(column.name)} as c{number}" for number, column in enumerate(table.schema.columns)]
    return folded.selectExpr(*ours, *values)


def _loading(database: Database, mirror: Mirror) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What an executor's task does: load its rows under a label of its own, in one transaction.

    A value that does not fit is an answer, not a failure: a second attempt of the task would meet it again, and the
    task's own error would show it.
    """

    def load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        label, rows, problem, remedy = uuid4().hex, 0, None, None
        try:
            with database.connected(mirror.source.id, mirror.name) as connection:
                rows = database.stage(connection, mirror, label, chain([first], filled))
                connection.commit()
        except SchemaError as wrong:
            problem, remedy = wrong.message, wrong.remedy
        yield pa.RecordBatch.from_pydict(
            {
                "label": pa.array([label], pa.string()),
                "rows": pa.array([rows], pa.int64()),
                "problem": pa.array([problem], pa.string()),
                "remedy": pa.array([remedy], pa.string()),
            }
        )

    return load


def _template(text: str, placeholders: set[str]) -> tuple[str, ...]:
    """A table's name as one or two parts, checked.

    Raises:
        OptionError: it has more parts, an empty one, or a placeholder that does not exist.
    """
    parts = tuple(text.split("."))
    try:
        used = {name for part in parts for _, name, _, _ in string.Formatter().parse(part) if name is not None}
    except ValueError:
        used = {"{"}
    if len(parts) > 2 or not all(parts) or not used <= placeholders:
        known = ", ".join(f"{{{name}}}" for name in sorted(placeholders)) or "none"
        raise OptionError(
            f"'{text}' is not a table name for sink 'jdbc'.",
            remedy=f"Give a name, or schema and name separated by a dot. Placeholders here: {known}.",
        )
    return parts


def _named(parts: Sequence[str], default_schema: str, id: TableId) -> TableName:
    """The table's name; a schema that is left empty is the connection's own."""
    filled = [part.format(database=id.database, schema=id.schema, table=id.name) for part in parts]
    return TableName(filled[-2] if len(filled) == 2 and filled[-2] else default_schema, filled[-1])


def _refuse_shared_targets(names: Iterable[TableName], *, folds: bool) -> None:
    """Stop where two tables of a batch would be one; without regard to case where servers may not have it."""
    keys = [(name.schema.lower(), name.name.lower()) if folds else (name.schema, name.name) for name in names]
    for (schema, name), n in Counter(keys).items():
        if n > 1:
            raise SinkError(
                f"{n} tables would share the name {schema}.{name} in the target database.",
                remedy="Distinguish them in the sink's option 'table_name', or give each source its own sink.",
            )
