"""DataFrames of a batch that cost Spark little: rows of this process in the plan itself, and rows computed once.

`spark.createDataFrame` of a list keeps Python rows, which a Python worker turns into Spark's in each action over them:
0.3 seconds, however few they are. An Arrow table becomes rows of the plan itself, which cost nothing.

Of persisted rows Spark remembers the plan: after each commit into a table that the plan reads it plans them again,
which takes seconds where plans are large. Rows of a local checkpoint have no plan, so what a batch reads several times
is kept as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def local_rows(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str | StructType) -> DataFrame:
    """The rows, in their order, as a DataFrame; for a batch's facts, not for its data.

    Runs on the driver; also with Spark Connect.

    Args:
        spark: the session.
        rows: one sequence of values per row, in the order of the columns. A struct is a sequence or a mapping of its
            fields, a map a mapping.
        schema: the columns and their types, as DDL or as Spark's type. A `datetime` without a zone is UTC.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    if isinstance(schema, str):
        parsed = StructType.fromDDL(schema)
        assert isinstance(parsed, StructType)
        schema = parsed
    # From 4.2 on it has to be told the zone, which was UTC before.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    kinds = to_arrow_schema(schema, **zone)
    lines = list(rows)
    columns = [
        pa.array([_arrow_value(line[at], field.type) for line in lines], field.type) for at, field in enumerate(kinds)
    ]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=kinds))


def _arrow_value(value: Any, kind: Any) -> Any:
    """The value as Arrow takes it: Arrow wants the entries of a map as pairs."""
    import pyarrow.types as kinds

    if value is None:
        return None
    if kinds.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(key, _arrow_value(item, kind.item_type)) for key, item in pairs]
    if kinds.is_struct(kind):
        if isinstance(value, Mapping):
            return {field.name: _arrow_value(value.get(field.name), field.type) for field in kind}
        return tuple(_arrow_value(item, field.type) for item, field in zip(value, kind, strict=True))
    if kinds.is_list(kind):
        return [_arrow_value(item, kind.value_type) for item in value]
    return value


@contextmanager
def kept_rows(frame: DataFrame, *, eager: bool = False) -> Iterator[DataFrame]:
    """The rows of a DataFrame, which are computed once at most, and freed at the end.

    If an executor takes some of them along, what reads them fails, and the batch can be repeated; they are never read
    again in silence. Over Spark Connect they are persisted.

    Args:
        frame: gives the rows.
        eager: whether they are computed at once, and not by the first action.
    """
    from pyspark import StorageLevel

    if not hasattr(frame, "_jdf"):
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield kept
        finally:
            kept.unpersist()
        return
    kept = frame.localCheckpoint(eager=eager, storageLevel=StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        # Spark itself frees them when Java collects its garbage.
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)
