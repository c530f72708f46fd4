"""What all encoders share: the schemas that the rows follow, the topic that a row goes to, and the encoded batch.

An encoded batch counts the values that a wire type does not hold, such as dates beyond its first and last.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import DATA_OPERATIONS
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.given import GivenSchema, nameless_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.types import DataType

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_DATA = ", ".join(literal(op.value) for op in DATA_OPERATIONS)


def has_struct_images(changes: DataFrame) -> bool:
    """Whether the images are structs of typed columns (one table) and not maps of texts (any table)."""
    return changes.schema["after"].dataType.typeName() == "struct"


def struct_schema(changes: DataFrame, given: GivenSchema | None, keys: Sequence[str] = ()) -> TableSchema:
    """The schema that struct images follow: the given one, else their own columns, without a name or key.

    Raises:
        OptionError: `schema` holds a list, or other columns or types; a column has a type without a logical type.
    """
    from pyspark.sql.types import StructType

    if given is not None:
        schema = given.only(keys)
        for name in ("before", "after"):
            _check_image(changes.schema[name].dataType, name, schema)
        return schema
    image = changes.schema["after"].dataType
    assert isinstance(image, StructType)
    return nameless_table(image, keys)


def _check_image(image: DataType, name: str, schema: TableSchema) -> None:
    from pyspark.sql.types import StructType

    types = {f.name: f.dataType.simpleString() for f in image.fields} if isinstance(image, StructType) else {}
    for column in schema.columns:
        kind = types.pop(column.name, None)
        if kind != column.logical.spark_type:
            raise OptionError(
                f"Column '{column.name}' of '{name}' is {kind or 'missing'}, but the schema has "
                f"{column.logical.spark_type}.",
                remedy="Pass the schema that the images follow, or leave it out.",
            )
    if types:
        raise OptionError(
            f"'{name}' has a column '{next(iter(types))}', which the schema does not have.",
            remedy="Pass the schema that the images follow, or leave it out.",
        )


def with_schema_ids(
    changes: DataFrame, given: GivenSchema | None, *, owner: str, keys: Sequence[str] = ()
) -> tuple[DataFrame, tuple[TableSchema, ...]]:
    """Change rows with map images whose `schema_id` names one of the schemas that come with them.

    The schemas are those of `schema` rows, or the given ones. Rows without a `schema_id` come from a format that
    says no types; their schema is then made of the columns that occur, all of them texts. A schema that says no
    key has the key of its rows. All this asks a batch DataFrame by small jobs.

    Args:
        changes: change rows with map images.
        given: the option `schema`; one schema without a list, or a DDL, is that of all rows without a `schema_id`.
        owner: who asks, for messages (`format 'canal_json'`).
        keys: the option `keys`, for tables whose rows have no key.

    Raises:
        OptionError: a streaming DataFrame without the option `schema`.
    """
    from pyspark.sql.functions import expr

    if given is not None and given.single:
        only = given.only(keys)
        return changes.withColumn("schema_id", expr(f"coalesce(schema_id, {literal(only.fingerprint)})")), (only,)
    if given is not None:
        return changes, tuple({schema.fingerprint: schema for schema in given.tables}.values())
    if changes.isStreaming:
        raise OptionError(
            f"{owner[:1].upper()}{owner[1:]} needs the option 'schema' to encode a streaming DataFrame.",
            remedy="Pass the tables' TableSchemas, or encode inside foreachBatch.",
        )
    texts = changes.where("op = 'schema' and table_schema is not null").select("table_schema").distinct()
    known = {s.fingerprint: s for s in (TableSchema.from_text(row[0]) for row in texts.collect())}
    changes, known = _with_keys(changes, known)
    inferred = _inferred(changes, keys)
    known |= {schema.fingerprint: schema for schema in inferred}
    schemas = tuple(known[fingerprint] for fingerprint in sorted(known))
    if not inferred:
        return changes, schemas
    branches = " ".join(
        f"when coalesce(table.database, '') = {literal(s.id.database)} and coalesce(table.schema, '') = "
        f"{literal(s.id.schema)} and coalesce(table.name, '') = {literal(s.id.name)} then {literal(s.fingerprint)}"
        for s in inferred
    )
    named = f"if(schema_id is null and op in ({_DATA}), case {branches} end, schema_id)"
    return changes.withColumn("schema_id", expr(named)), schemas


def _with_keys(changes: DataFrame, known: Mapping[str, TableSchema]) -> tuple[DataFrame, dict[str, TableSchema]]:
    """The rows, and their schemas by fingerprint; one that says no key has that of its rows."""
    from pyspark.sql.functions import expr

    keyless = ", ".join(literal(fingerprint) for fingerprint, schema in known.items() if not schema.key)
    if not keyless:
        return changes, dict(known)
    data = changes.where(f"op in ({_DATA}) and schema_id in ({keyless}) and key is not null")
    keys: dict[str, tuple[str, ...]] = {}
    for row in sorted(data.selectExpr("schema_id", "map_keys(key) as k").distinct().collect()):
        keys.setdefault(row.schema_id, tuple(row.k))
    keyed = {
        fingerprint: replace(known[fingerprint], key=key)
        for fingerprint, key in keys.items()
        if key and {column.name for column in known[fingerprint].columns}.issuperset(key)
    }
    if not keyed:
        return changes, dict(known)
    branches = " ".join(f"when {literal(old)} then {literal(new.fingerprint)}" for old, new in keyed.items())
    named = changes.withColumn("schema_id", expr(f"case schema_id {branches} else schema_id end"))
    return named, dict(known) | {schema.fingerprint: schema for schema in keyed.values()}


def _inferred(changes: DataFrame, keys: Sequence[str]) -> list[TableSchema]:
    """One schema of texts per table whose rows have no schema: the union of their columns, in order of appearance."""
    shapes = (
        changes.where(f"schema_id is null and op in ({_DATA})")
        .selectExpr(
            "coalesce(table.database, '') as d",
            "coalesce(table.schema, '') as s",
            "coalesce(table.name, '') as n",
            "map_keys(key) as k",
            "map_keys(coalesce(after, before)) as a",
            "map_keys(before) as b",
        )
        .distinct()
        .collect()
    )
    columns: dict[TableId, dict[str, None]] = {}
    key_of: dict[TableId, tuple[str, ...]] = {}
    # Longest first: a whole image says the columns' order, a partial one does not.
    for shape in sorted(shapes, key=lambda x: (-len(x.a or ()), x.a or [], x.b or [], x.k or [])):
        id = TableId(shape.d, shape.s, shape.n)
        names = columns.setdefault(id, {})
        names.update(dict.fromkeys([*(shape.a or ()), *(shape.b or ()), *(shape.k or ())]))
        if shape.k:
            key_of.setdefault(id, tuple(shape.k))
    schemas = []
    for id, names in sorted(columns.items()):
        key = key_of.get(id) or tuple(k for k in keys if k in names)
        text = LogicalType("string")
        inferred = tuple(Column(name, n, text, nullable=name not in key) for n, name in enumerate(names, 1))
        schemas.append(TableSchema(id, inferred, key))
    return schemas


def topic_for(template: str, table: TableId) -> str:
    """The topic of a table from a template with `${database}`, `${schema}`, `${table}` and `${path}`.

    `${path}` is the parts that the table has, with points between.

    Raises:
        OptionError: the template names something else.
    """
    known = {
        "database": table.database,
        "schema": table.schema,
        "table": table.name,
        "path": ".".join(part for part in (table.database, table.schema, table.name) if part),
    }

    def part(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise OptionError(
                f"Option 'topic' can't hold '{match[0]}'.", remedy=f"Known: {', '.join('${' + k + '}' for k in known)}."
            )
        return known[match[1]]

    return _PLACEHOLDER.sub(part, template)


_WAIT_SECONDS = 10.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class OutOfRange:
    """Values in whose place null stands, or the nearest one where a column has no NULL.

    Args:
        columns: how many there are by table and column.
        first: table, column and key of the first one by its text; empty where there is none.
    """

    columns: Mapping[tuple[TableId, str], int] = field(default_factory=dict)
    first: str = ""

    @property
    def values(self) -> int:
        """How many there are in all."""
        return sum(self.columns.values())

    def plus(self, more: OutOfRange) -> OutOfRange:
        """Both together."""
        firsts = [one.first for one in (self, more) if one.first]
        return OutOfRange(Counter(self.columns) + Counter(more.columns), min(firsts, default=""))

    def since(self, earlier: OutOfRange) -> OutOfRange:
        """What was added to an earlier count."""
        return OutOfRange(Counter(self.columns) - Counter(earlier.columns), self.first)

    def to_text(self) -> str | None:
        """As a task hands it to the driver; None where no value is counted."""
        columns = [[id.database, id.schema, id.name, name, n] for (id, name), n in self.columns.items()]
        return json.dumps([columns, self.first], ensure_ascii=False) if columns else None

    @classmethod
    def of_texts(cls, texts: Iterable[str | None]) -> OutOfRange:
        """What `to_text` wrote in several tasks, together."""
        whole = cls()
        for columns, first in (json.loads(text) for text in texts if text):
            whole = whole.plus(cls({(TableId(*id), name): n for *id, name, n in columns}, first))
        return whole


@dataclass(frozen=True)
class EncodedBatch:
    """What a format made of a batch.

    Args:
        messages: the messages.
        observation: counts `OutOfRange` when the messages are computed; None where the format holds all values.
    """

    messages: DataFrame
    observation: Observation | None = None

    def out_of_range(self) -> OutOfRange:
        """What was counted, to be asked after the messages were written."""
        if self.observation is None:
            return OutOfRange()
        counts: list[dict[str, Any]] = []
        # Where nobody computed the messages, Spark would wait for it without end.
        asking = threading.Thread(target=lambda: counts.append(self.observation.get), daemon=True)  # type: ignore[union-attr]
        asking.start()
        asking.join(_WAIT_SECONDS)
        return OutOfRange.of_texts((counts[0] if counts else {}).get("lost", "").split("\n"))


def observation_name(format: str) -> str:
    """The name under which a query's observed metrics have what `OutOfRange` says."""
    return f"headrace.encode.{format}.{next(_numbers)}"


def observed_batch(encode: Callable[[Observation], DataFrame]) -> EncodedBatch:
    """A batch whose plan counts into an observation, as far as `encode` puts it there."""
    from pyspark.sql import Observation

    observation = Observation()
    messages = encode(observation)
    # It is in no plan where no column can hold such a value.
    return EncodedBatch(messages, observation if getattr(observation, "_jo", None) is not None else None)
