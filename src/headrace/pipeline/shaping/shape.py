"""What the rows of a batch go through on their way to a sink: transforms, then the sink's routes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from headrace.changes import TableId, TableSchema
from headrace.changes.position import READ_AGAIN_FROM
from headrace.changes.refusal import refusal
from headrace.changes.row import SNAPSHOT_ENDS
from headrace.changes.typed import laid_over, literal
from headrace.errors import HeadraceError, OptionError, SchemaError
from headrace.formats.encoding import has_struct_images
from headrace.pipeline.recover import recover
from headrace.pipeline.shaping.routes import Destination, Destinations, Routes, refuse_different
from headrace.pipeline.shaping.table_transform import SALTS, Read, TableTransform, transform_table
from headrace.pipeline.shaping.transforms import Transform
from headrace.spark.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

_FACTS = (
    "f_database string, f_schema string, f_name string, f_schema_id string, f_left_out boolean, f_merge boolean, "
    "f_table struct<database: string, schema: string, name: string>, f_new_id string, f_structure string, "
    f"f_plan int, {SALTS} array<string>"
)
_BEFORE, _AFTER = "__headrace_before", "__headrace_after"
_ENDS = f"snapshot in {SNAPSHOT_ENDS}"


@dataclass(frozen=True)
class FoundSchema:
    """A schema that rows of a table follow in one batch.

    Args:
        schema_id: as the rows name it; empty for rows that name none.
        schema: what `schema` rows say of it; None where none does.
        order: by which the newest is known.
        has_rows: whether rows of data follow it.
    """

    schema_id: str
    schema: TableSchema | None
    order: tuple[str, str, str]
    has_rows: bool


FoundSchemas = Mapping[TableId, Sequence[FoundSchema]]
"""What a batch holds: the schemas of each table."""


@dataclass(frozen=True)
class _Fact:
    """What to do with the rows of one table that follow one schema."""

    table: TableId
    schema_id: str
    destination: Destination | None
    schema: TableSchema | None = None
    transform: TableTransform | None = None


@dataclass
class Shaping:
    """The way of change rows to one sink. Lives in the driver; used by one batch at a time.

    Rows keep their order and position. A row that names no table goes on as it is. Only the rows decide the result, so
    that a repeated batch repeats it.

    Args:
        transforms: all that are for this sink, in order.
        routes: the sink's.
        owner: the sink, for messages.
        takes: what the sink takes.
    """

    transforms: tuple[Transform, ...] = ()
    routes: Routes = field(default_factory=Routes)
    owner: str = ""
    takes: Literal["messages", "changes"] = "changes"
    _destinations: Destinations = field(init=False, repr=False)
    _known: dict[str, TableTransform | None] = field(init=False, repr=False, default_factory=dict)
    _read: Read = field(init=False, repr=False, default_factory=dict)
    _stood_for: dict[TableId, dict[str, str]] = field(init=False, repr=False, default_factory=dict)
    _expects: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        self._destinations = Destinations(self.owner)

    @property
    def changes_nothing(self) -> bool:
        return not self.transforms and self.routes.change_nothing

    @property
    def key(self) -> str:
        """The same text for the same way, so that two sinks can share what was made; empty where nothing changes."""
        if self.changes_nothing:
            return ""
        # Their texts leave salts out, which make a difference all the same.
        salts = [mask.mask.salt for transform in self.transforms for mask in transform.masks]
        text = f"{self.takes} {self.transforms!r} {self.routes!r} {salts!r}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def has_sql(self) -> bool:
        """Whether only Spark can derive a table's schema after the transforms."""
        return any(transform.has_sql for transform in self.transforms)

    def expect(self, tables: Iterable[TableSchema]) -> None:
        """Take note of the source's tables, so that what does not suit them is found before the first row.

        Raises:
            OptionError: two tables would become one, a name would be empty, or a transform without expressions can't be
                applied to a table.
        """
        for schema in tables:
            self.structure(schema, None)

    def remember(self, tables: Iterable[TableSchema]) -> None:
        """Take note of structures that rows of a database had before, so that a column that went since is missed.

        What messages say of a structure may be a part of it, so that nothing is missed there.
        """
        self._expects = True
        for schema in tables:
            self._note(schema)

    def _note(self, schema: TableSchema) -> set[str]:
        """The columns of a table that transforms name, which are remembered with the option that does."""
        there = {column.name for column in schema.columns}
        for transform in self.transforms:
            if transform.matches(schema.id):
                for option, _, names in transform.named_columns:
                    sources = {n: f"option '{option}' of {transform.label}" for n in names if n in there}
                    self._stood_for.setdefault(schema.id, {}).update(sources)
        return there

    def _require_still_there(self, schema: TableSchema) -> None:
        """Stop where a transform named a column of the table that a newer structure has not.

        Raises:
            OptionError: with the column and the option.
        """
        there = self._note(schema)
        for name, option in self._stood_for.get(schema.id, {}).items():
            if name not in there:
                raise OptionError(
                    f"Table '{schema.id.path}' has no column '{name}' any more, which {option} names.",
                    remedy="Name the column as it is called now, and put 'optional:' before the name that is there.",
                )

    def source_of(self, table: TableId) -> TableId | None:
        """The source's table that is this one in the sink; None where it is several, or where none went there yet."""
        if self.changes_nothing:
            return table
        return self._destinations.only_source(table)

    def structure(self, schema: TableSchema, spark: SparkSession | None) -> TableSchema | None:
        """What a table is in the sink; None where it is left out.

        Args:
            schema: the table as the source has it.
            spark: reads expressions; without it, columns are as in the source where there are any.

        Raises:
            HeadraceError: a transform or a route can't be applied to the table.
        """
        destination = self.routes.destination(schema.id)
        if destination is None:
            return None
        if self._expects:
            self._require_still_there(schema)
        transform = self._transform(schema, spark) if spark is not None or not self.has_sql else None
        result = schema if transform is None else transform.schema
        self._destinations.claim(schema.id, destination)
        return replace(result, id=destination.id)

    def rows(self, changes: DataFrame, schemas: FoundSchemas | None = None) -> DataFrame:
        """A batch's rows as the sink gets them; lazy.

        Args:
            changes: change rows of any tables, each with its table's `schema` row among them.
            schemas: what `tables_in` says of them, where it was asked already.

        Raises:
            OptionError: a transform or a route can't be applied to a table of the batch.
            SchemaError: the structure of a table that has a transform is not known.
        """
        if self.changes_nothing:
            return changes
        if self.transforms and has_struct_images(changes):
            raise SchemaError(
                "Transforms take rows whose structure comes with them, but the source's format has the option "
                "'schema' for one table.",
                remedy="Give that option as a list of structures, or leave it out.",
            )
        facts = list(self._facts(tables_in(changes) if schemas is None else schemas, changes.sparkSession))
        plans = {f.transform.source.fingerprint: f.transform for f in facts if f.transform is not None}
        joined = _joined(changes, facts, list(plans))
        if plans:
            joined = _transformed(joined, list(plans.values()), self.takes)
        return _finished(joined, changes.columns, self.takes)

    def _transform(self, schema: TableSchema, spark: SparkSession | None) -> TableTransform | None:
        id = schema.fingerprint
        if id not in self._known:
            self._known[id] = transform_table(self.transforms, schema, spark, self._read)
        return self._known[id]

    def _facts(self, schemas: FoundSchemas, spark: SparkSession) -> Iterable[_Fact]:
        """What to do with the rows of the batch, by table and schema."""
        shared: dict[TableId, list[tuple[TableId, TableSchema]]] = {}
        for table, lines in sorted(schemas.items()):
            destination = self.routes.destination(table)
            if destination is not None:
                self._destinations.claim(table, destination)
            known = sorted((line for line in lines if line.schema is not None), key=lambda line: line.order)
            newest = known[-1].schema if known else None
            for line in known:
                if line.schema is not None and self._expects:
                    self._require_still_there(line.schema)
            for line in lines:
                if destination is None:
                    yield _Fact(table, line.schema_id, None)
                    continue
                # A row that says no structure follows its table's newest.
                schema = line.schema if line.schema is not None or line.schema_id else newest
                yield self._fact(table, line, destination, schema, spark)
            if destination is not None and newest is not None and destination.merge:
                others = shared.setdefault(destination.id, [])
                others.append((table, self._shaped(newest, spark)))
                refuse_different(destination.id, others)

    def _fact(
        self,
        table: TableId,
        line: FoundSchema,
        destination: Destination,
        schema: TableSchema | None,
        spark: SparkSession,
    ) -> _Fact:
        if schema is None:
            if line.has_rows and any(transform.matches(table) for transform in self.transforms):
                raise SchemaError(
                    f"The structure of table '{table}' is not known: the batch has rows of it but no schema row, so it "
                    "can't be transformed.",
                    remedy="Let the source or decoder emit schema rows, or give the table's structure to the format.",
                )
            return _Fact(table, line.schema_id, destination)
        shaped = self._shaped(schema, spark)
        return _Fact(
            table, line.schema_id, destination, replace(shaped, id=destination.id), self._transform(schema, spark)
        )

    def _shaped(self, schema: TableSchema, spark: SparkSession) -> TableSchema:
        transform = self._transform(schema, spark)
        return schema if transform is None else transform.schema


def tables_in(changes: DataFrame) -> FoundSchemas:
    """What a batch holds, by one small Spark job over `changes` (persist them). Runs in the driver."""
    from pyspark.sql import functions as sf

    is_schema = "op = 'schema' and table_schema is not null"
    lines = (
        changes.where("coalesce(table.name, '') <> ''")
        .selectExpr(
            "coalesce(table.database, '') as d",
            "coalesce(table.schema, '') as s",
            "coalesce(table.name, '') as n",
            "coalesce(schema_id, '') as id",
            "op",
            "position",
            f"if({is_schema}, table_schema, null) as structure",
        )
        .groupBy("d", "s", "n", "id")
        .agg(
            sf.expr("max_by(structure, position) filter (where structure is not null) as structure"),
            sf.expr("coalesce(max(position) filter (where structure is not null), '') as told_at"),
            sf.expr("coalesce(max(position), '') as last_at"),
            sf.expr("count_if(op in ('r', 'c', 'u', 'd')) > 0 as has_rows"),
        )
        .collect()
    )
    schemas: dict[TableId, list[FoundSchema]] = {}
    for line in lines:
        schema = None if line["structure"] is None else TableSchema.from_text(line["structure"])
        order = (line["told_at"], line["last_at"], line["id"])
        one = FoundSchema(line["id"], schema, order, line["has_rows"])
        schemas.setdefault(TableId(line["d"], line["s"], line["n"]), []).append(one)
    return schemas


def _joined(changes: DataFrame, facts: Sequence[_Fact], plans: Sequence[str]) -> DataFrame:
    """The rows, with the columns that say what to do with each; rows of tables that are left out are dropped."""
    from pyspark.sql import functions as sf

    numbers = {fingerprint: number for number, fingerprint in enumerate(plans)}
    lines = []
    for fact in facts:
        target, transform = fact.destination, fact.transform
        renamed = target is not None and target.id != fact.table
        fact_schema = fact.schema if renamed or transform is not None else None
        lines.append(
            (
                *(fact.table.database, fact.table.schema, fact.table.name, fact.schema_id),
                target is None,
                target is not None and target.merge,
                _parts(target.id) if target is not None and renamed else None,
                None if fact_schema is None else fact_schema.fingerprint,
                None if fact_schema is None else fact_schema.to_text(),
                None if transform is None else numbers[transform.source.fingerprint],
                None if transform is None else list(transform.salts),
            )
        )
    known = sf.broadcast(local_rows(changes.sparkSession, lines, _FACTS))
    parts = {"f_database": "table.database", "f_schema": "table.schema", "f_name": "table.name"}
    parts["f_schema_id"] = "schema_id"
    named = changes.selectExpr("*", *(f"coalesce({value}, '') as {name}" for name, value in parts.items()))
    return named.join(known, list(parts), "left").where("not coalesce(f_left_out, false)")


def _parts(id: TableId) -> dict[str, str]:
    return {"database": id.database, "schema": id.schema, "name": id.name}


def _transformed(joined: DataFrame, plans: Sequence[TableTransform], takes: str) -> DataFrame:
    """The rows with new images, and those that a filter leaves out gone or made into what that means."""
    every = joined.columns

    def by_plan(value: Callable[[TableTransform], str | None], otherwise: str) -> str:
        cases = [(number, value(plan)) for number, plan in enumerate(plans)]
        branches = " ".join(f"when {number} then {sql}" for number, sql in cases if sql is not None)
        return f"case f_plan {branches} else {otherwise} end" if branches else otherwise

    nothing = "cast(null as struct<kept: boolean, made: array<string>>)"
    # Under names that no table's column has, because a column would come before the image.
    images = joined.selectExpr("*", f"before as {_BEFORE}", f"after as {_AFTER}")
    opened = images.selectExpr(
        "*",
        f"if(after is null, {nothing}, {by_plan(lambda p: _opened(p, _AFTER, _BEFORE), nothing)}) as o_after",
        f"if(before is null, {nothing}, {by_plan(lambda p: _opened(p, _BEFORE, _AFTER), nothing)}) as o_before",
    )
    filtered = [plan for plan in plans if plan.needed is not None]
    opened = _filtered(opened, by_plan, takes) if filtered else opened.selectExpr("*", "'keep' as f_do")
    replaced = {
        "after": f"if(after is null, null, {by_plan(lambda plan: _new_image(plan, 'after', 'before'), 'after')})",
        "before": f"if(before is null, null, {by_plan(lambda plan: _new_image(plan, 'before', 'after'), 'before')})",
        "changed": f"if(changed is null, null, {by_plan(lambda plan: plan.changed('changed'), 'changed')})",
    }
    # A delete or create that was an update is done with the other image, and with what the source said of it.
    replaced["after"] = f"if(f_do = 'd', null, {replaced['after']})"
    replaced["before"] = f"if(f_do = 'c', null, {replaced['before']})"
    replaced["changed"] = f"if(f_do <> 'keep', null, {replaced['changed']})"
    replaced["op"] = "if(f_do = 'keep', op, f_do)"
    return opened.selectExpr(*(f"{replaced[name]} as {name}" if name in replaced else name for name in every))


def _opened(plan: TableTransform, image: str, other: str) -> str | None:
    return plan.opened(image, other) if plan.opens else None


def _filtered(
    opened: DataFrame, by_plan: Callable[[Callable[[TableTransform], str | None], str], str], takes: str
) -> DataFrame:
    """The rows that go on, with `f_do`: `keep`, or `c` or `d` for rows that become that.

    Tables get two kinds of rows that a filter leaves out as deletes. The last row of a snapshot says that the snapshot
    is at its end, so that what vanished meanwhile can be removed. And a row of an ad-hoc snapshot may be in the table
    still, from a time when the filter was another.
    """
    rest = [name for name in opened.columns if name not in ("before", "after", "o_before", "key", "key_text")]

    def known(plan: TableTransform, image: str, other: str) -> str | None:
        if plan.needed is None:
            return None
        return _all(_said(plan, name, image, other) for name in plan.needed)

    def refusal(plan: TableTransform) -> str | None:
        if not plan.needed:
            return None
        names = ", ".join(f"'{name}'" for name in plan.needed)
        return _raised(
            f"A change of table {plan.source.id} does not carry all columns that the filter of its transforms needs "
            f"({names}). Let the source send whole rows, or filter by columns that are always there."
        )

    has_filter = by_plan(lambda plan: None if plan.needed is None else "true", "false")
    was = f"if(before is not null and {by_plan(lambda p: known(p, 'before', 'after'), 'true')}, o_before.kept, null)"
    now = f"if(after is not null and {by_plan(lambda p: known(p, 'after', 'before'), 'true')}, o_after.kept, null)"
    decided = opened.selectExpr("*", f"{has_filter} as f_has_filter", f"{was} as f_was", f"{now} as f_now")
    unknown = by_plan(refusal, "'keep'")
    left = f"if({_ENDS} or snapshot = 'incremental', 'end', 'drop')" if takes == "changes" else "'drop'"
    # What was before is unknown where the source does not say it: then the target may have the row, or not.
    decision = (
        "case when not f_has_filter or op not in ('r', 'c', 'u', 'd') then 'keep' "
        f"when op = 'd' then if(coalesce(f_was, true), 'keep', 'drop') "
        f"when f_now is null then {unknown} "
        f"when op in ('r', 'c') then if(f_now, 'keep', {left}) "
        "when f_now then if(coalesce(f_was, true), 'keep', 'c') "
        "when coalesce(f_was, true) then 'd' else 'drop' end"
    )
    decided = decided.selectExpr("*", f"{decision} as f_do").where("f_do <> 'drop'")
    # A row that enters is whole, as far as its two images have it.
    whole = f"if(f_do = 'c' and op = 'u', {laid_over('before', 'after')}, after)"
    no_keys = "cast(null as array<string>)"
    keys = by_plan(lambda plan: f"array({_names(plan.source.key)})" if plan.source.key else None, no_keys)
    keyed = "if(f_do = 'c', after, before)"
    moved = (
        f"if(f_do in ('c', 'd') and op = 'u' and coalesce(forall({keys}, k -> map_contains_key({keyed}, k)), false), "
        f"map_from_arrays({keys}, transform({keys}, k -> {keyed}[k])), null)"
    )
    moved_rows = decided.selectExpr("*", f"{moved} as f_key")
    return moved_rows.selectExpr(
        *rest,
        "if(f_do = 'end', after, before) as before",
        "if(f_do = 'end', o_after, o_before) as o_before",
        f"if(f_do = 'end', null, {whole}) as after",
        "coalesce(f_key, key) as key",
        "if(f_key is null or map_entries(f_key) <=> map_entries(key), key_text, to_json(map_values(f_key))) "
        "as key_text",
        "if(f_do = 'end', 'd', f_do) as f_do",
    )


def _said(plan: TableTransform, name: str, image: str, other: str) -> str:
    """Spark SQL: is the column's value in an image known, from itself or from a row's other image?"""
    text = literal(name)
    is_present = f"map_contains_key({image}, {text})"
    same = f"not array_contains(changed, {text})"
    # An update's old image says nothing new of a column that the source says it did not change; and what a new image
    # leaves out did not change, but for large values, which the old one may leave out too.
    if image == "before" or plan.source.column(name).large:
        same = f"changed is not null and {same}"
    else:
        same = f"(changed is null or {same})"
    return f"coalesce({is_present} or (op = 'u' and map_contains_key({other}, {text}) and {same}), false)"


def _new_image(plan: TableTransform, image: str, other: str) -> str | None:
    present = []
    for computed in plan.made:
        if not computed.origins:
            present.append("true")
            continue
        some = " or ".join(f"map_contains_key({image}, {literal(name)})" for name in computed.origins)
        every = _all(_said(plan, name, image, other) for name in computed.origins)
        refused = _raised(
            f"A change of table {plan.source.id} carries some and not all of the columns of which column "
            f"'{computed.name}' is computed ({', '.join(computed.origins)}). Let the source send whole rows, or leave "
            "the column out."
        )
        # An old image may be in part; a new one in part would leave a stale value in the target.
        lacking = refused if image == "after" else "false"
        present.append(f"case when not ({some}) then false when {every} then true else {lacking} end")
    return plan.image(image, f"o_{image}.made", present)


def _finished(joined: DataFrame, columns: Sequence[str], takes: str) -> DataFrame:
    """The rows under their new names, with the columns of change rows only."""
    replaced = {
        "table": "coalesce(f_table, table)",
        "schema_id": "coalesce(f_new_id, schema_id)",
        "table_schema": "if(op = 'schema' and table_schema is not null, coalesce(f_structure, table_schema), "
        "table_schema)",
    }
    if takes == "changes":
        # One table's snapshot says nothing of the others' rows, so its rows are like any other change.
        replaced["snapshot"] = (
            "case when not coalesce(f_merge, false) then snapshot when op = 'r' then 'incremental' else null end"
        )
        # What a statement does to the names of one table it does not do to the others, nor does a read again.
        without_ddl = f"map_filter(source, (k, v) -> k not in ('ddl', '{READ_AGAIN_FROM}'))"
        replaced["source"] = f"if(op = 'schema' and coalesce(f_merge, false), {without_ddl}, source)"
        emptied = (
            "concat('Table ', concat_ws('.', table.database, table.schema, table.name), ' was emptied by "
            "a truncate, and shares its target with others. Take new snapshots of the tables into a new target.')"
        )
        replaced["op"] = f"if(op = 't' and coalesce(f_merge, false), {refusal(emptied, SchemaError)}, op)"
    return joined.selectExpr(*(f"{replaced[name]} as {name}" if name in replaced else name for name in columns))


def explained(error: PySparkException) -> HeadraceError:
    """Why the rows could not be computed, as a sentence without any value."""
    recovered = recover(error)
    if recovered is not None:
        return SchemaError(recovered.message, remedy=recovered.remedy)
    condition = error.getCondition() or type(error).__name__
    return SchemaError(
        f"An expression of the transforms can't be computed for a row of the batch ({condition}).",
        remedy="Write it so that it bears every value (try_divide, try_cast, coalesce); --debug shows Spark's own "
        "message.",
    )


def _raised(sentence: str) -> str:
    return refusal(literal(sentence), SchemaError)


def _all(conditions: Iterable[str]) -> str:
    return " and ".join(conditions) or "true"


def _names(names: Iterable[str]) -> str:
    return ", ".join(literal(name) for name in names)
