"""Structures that come with the messages: found, read once each, and announced by a `schema` row.

Many formats say with a message how its rows are typed (a Debezium schema, Canal's `mysqlType`, the fields of a DTS
record). A decoder gives that part as text, and a function that reads it; what it reads is done once per distinct text,
not once per message.

- Batch DataFrames (so pipelines and `foreachBatch` too): one job collects the distinct texts on the driver, and a
  broadcast join gives each message what was read. The messages are read twice.
- Streaming DataFrames: Arrow batches in the executors, with a cache in each task. Each task announces the structures
  that it meets, so that a structure is announced again in later batches, which is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.changes import TableSchema
from headrace.errors import HeadraceError
from headrace.local_rows import local_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

MOST_STRUCTURES = 20_000
"""How many distinct structures a batch may have; more means that the text is no structure."""

_COLUMNS = "schema_id string, plan {plan}, new_schema string"


@dataclass(frozen=True)
class Structure:
    """What was read from one structure's text.

    Args:
        schema: the table's structure; None where the text is none, which gives no `schema` row.
        plan: what the decoder's expressions need to read the values: a Python value of the plan's Spark type.
    """

    schema: TableSchema | None
    plan: Any = None


def with_structures(
    messages: DataFrame,
    text: str,
    read: Callable[[str], Structure],
    plan: str = "string",
    without: Sequence[str] = (),
) -> DataFrame:
    """The messages with `schema_id`, `plan` and `new_schema` beside their columns; all three are null without a text.

    Args:
        messages: has Kafka's columns.
        text: Spark SQL for the structure's text; null where a message carries none.
        read: reads one text; runs on the driver (batch) or in executors (stream), so it must be picklable and must not
            raise: for a text that is no structure it returns `Structure(None, ...)`.
        plan: the Spark type of the plan, as DDL.
        without: columns of the messages that only `text` speaks of; they are left out.

    Returns:
        The same messages, lazily, to be given to `messages.change_rows` with `announced`. `new_schema` is the
        structure's JSON at the first message of its topic and partition (batch) or of the task (stream), else null.

    Raises:
        HeadraceError: a batch has more than `MOST_STRUCTURES` distinct structures.
    """
    kept = [name for name in messages.columns if name not in without]
    marked = messages.selectExpr(*kept, f"{text} as structure_text")
    if messages.isStreaming:
        return _streamed(marked, read, plan)
    return _collected(marked, read, plan)


def _collected(marked: DataFrame, read: Callable[[str], Structure], plan: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    # Grouped by the texts themselves: aggregating a text instead would sort the batch. Messages without one are groups
    # too, left out by an aggregate: a filter on the text would go before the grouping, and compute the text twice.
    first, told = F.min("offset").alias("first"), F.bool_or(F.col("structure_text").isNotNull()).alias("told")
    groups = marked.groupBy("structure_text", "topic", "partition").agg(first, told)
    found = groups.where("told").limit(MOST_STRUCTURES + 1).collect()
    if len(found) > MOST_STRUCTURES:
        raise HeadraceError(
            f"The messages have more than {MOST_STRUCTURES} different structures.",
            remedy="Check that the format is the right one, or decode fewer tables at once.",
        )
    places: dict[str, list[tuple[str, int, int]]] = {}
    for line in found:
        places.setdefault(line.structure_text, []).append((line.topic, line.partition, line.first))
    known = []
    for text_found, firsts_found in places.items():
        structure = read(text_found)
        schema = structure.schema
        id, text = (schema.fingerprint, schema.to_text()) if schema else (None, None)
        known.append((text_found, id, structure.plan, text, firsts_found, True))
    spark = marked.sparkSession
    ddl = (
        f"structure_text string, found_id string, found_plan {plan}, found_schema string, "
        "firsts array<struct<first_topic: string, first_partition: int, first_offset: bigint>>, joined boolean"
    )
    found_frame = local_rows(spark, known, ddl)
    here = "named_struct('first_topic', topic, 'first_partition', partition, 'first_offset', offset)"
    joined = marked.join(F.broadcast(found_frame), "structure_text", "left")
    return joined.selectExpr(
        *(name for name in marked.columns if name != "structure_text"),
        "found_id as schema_id",
        "found_plan as plan",
        f"if(joined and array_contains(firsts, {here}), found_schema, null) as new_schema",
    )


def _streamed(marked: DataFrame, read: Callable[[str], Structure], plan: str) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    names = tuple(name for name in marked.columns if name != "structure_text")
    added = StructType.fromDDL(_COLUMNS.format(plan=plan))
    assert isinstance(added, StructType)
    out = StructType([*(marked.schema[name] for name in names), *added.fields])
    kinds = [to_arrow_type(field.dataType) for field in added.fields]

    def extend(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        announced: set[str] = set()
        cache: dict[str, Structure] = {}
        for batch in batches:
            columns = _read_batch(batch.column("structure_text"), read, cache, announced, kinds)
            yield _table(batch, names, columns, [f.name for f in added.fields])

    return marked.mapInArrow(extend, out)


def _read_batch(
    texts: pa.Array,
    read: Callable[[str], Structure],
    cache: dict[str, Structure],
    announced: set[str],
    kinds: Sequence[pa.DataType],
) -> list[pa.Array]:
    """The three columns of a batch: each distinct text is read once, by the batch's dictionary."""
    import pyarrow as pa

    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    for text in distinct:
        if text not in cache:
            cache[text] = read(text)
    structures = [cache[text] for text in distinct]
    ids = [s.schema.fingerprint if s.schema else None for s in structures]
    schema_ids = pa.array(ids, kinds[0]).take(encoded.indices)
    plans = pa.array([s.plan for s in structures], kinds[1]).take(encoded.indices)
    new: list[str | None] = [None] * len(texts)
    for number, structure in enumerate(structures):
        if structure.schema is None or structure.schema.fingerprint in announced:
            continue
        announced.add(structure.schema.fingerprint)
        new[encoded.indices.index(number).as_py()] = structure.schema.to_text()
    return [schema_ids, plans, pa.array(new, kinds[2])]


def _table(
    batch: pa.RecordBatch, names: Sequence[str], columns: Sequence[pa.Array], added: Sequence[str]
) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([*(batch.column(n) for n in names), *columns], names=[*names, *added])
