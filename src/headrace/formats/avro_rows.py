"""Avro read in Python workers: where schemas are not known when the query is planned, or spark-avro is not there.

Per-row Python, because an Avro datum can't be cut into columns without walking through it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.formats.avro_decode import Resolved, Schemas
    from headrace.formats.avro_framing import Side
    from headrace.formats.avro_schema import WriterSchema

_SIDES: tuple[Side, ...] = ("key", "value")
# Schemas as fastavro has read them, for the life of the worker process.
_PARSED: dict[int, tuple[WriterSchema, Any]] = {}
_MOST_PARSED = 4096


@dataclass(frozen=True)
class JsonParts:
    """For `mapInArrow`: the columns of framed messages to the same columns with `key_json`, `value_json`, `problem`.

    Runs in Python workers. Unknown ids are asked for once per batch of rows, so that a schema which is registered later
    is found without a restart.

    Args:
        schemas: where schemas come from.
        kept: the columns that go through as they are.
    """

    schemas: Schemas
    kept: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The extended batches."""
        for batch in batches:
            yield self._extended(batch)

    def _extended(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns: dict[Side, list[bytes | None]] = {}
        problems = batch.column("problem").to_pylist()
        heads = {side: batch.column(f"{side}_head").to_pylist() for side in _SIDES}
        wanted = {(side, head) for side in _SIDES for head in heads[side] if head is not None}
        found = self.schemas.resolved(sorted(wanted))
        # Values are looked at last, so that what is wrong with them is what is said.
        for side in _SIDES:
            bodies = batch.column(f"{side}_body").to_pylist()
            texts: list[bytes | None] = [None] * len(bodies)
            for n, head in enumerate(heads[side]):
                if head is None or (problems[n] is not None and side == "key"):
                    continue
                texts[n], wrong = self._read(found[side, head], bodies[n], side)
                problems[n] = wrong or problems[n]
            columns[side] = texts
        arrays = [batch.column(name) for name in self.kept]
        arrays += [pa.array(columns["key"], pa.binary()), pa.array(columns["value"], pa.binary())]
        arrays.append(pa.array(problems, pa.string()))
        return pa.RecordBatch.from_arrays(arrays, names=[*self.kept, "key_json", "value_json", "problem"])

    @staticmethod
    def _read(resolved: Resolved, body: bytes, side: Side) -> tuple[bytes | None, str | None]:
        if resolved.schema is None:
            return None, resolved.problem
        try:
            datum = read_datum(resolved.schema, body)
        except ValueError:
            return None, f"The {side} is no Avro datum of its schema."
        return f'{{"schema":{resolved.schema.connect_text},"payload":{_json(datum)}}}'.encode(), None


def read_datum(schema: WriterSchema, body: bytes) -> Any:
    """The Python value of an Avro datum.

    Raises:
        ValueError: the bytes are none, or more than one.
    """
    stream = io.BytesIO(body)
    try:
        found = _reader()(stream, parsed_schema(schema), None)
    # What the C extension raises for bytes that are no datum is not declared anywhere: struct.error, EOFError,
    # IndexError, UnicodeDecodeError, MemoryError and others were seen.
    except Exception as error:
        raise ValueError(f"no datum: {type(error).__name__}") from error
    if stream.tell() != len(body):
        raise ValueError("bytes are left over")
    return found


def _reader() -> Callable[..., Any]:
    try:
        from fastavro import schemaless_reader
    except ImportError as error:
        raise OptionError(
            "Reading Avro in Python needs the package fastavro.",
            remedy="Install it: pip install 'headrace[registry]'.",
        ) from error
    reader: Callable[..., Any] = schemaless_reader
    return reader


def parsed_schema(schema: WriterSchema) -> Any:
    """The schema as fastavro reads and writes with it."""
    from fastavro import parse_schema

    if id(schema) not in _PARSED:
        if len(_PARSED) >= _MOST_PARSED:
            _PARSED.clear()
        # Kept with the schema itself, so that no other object can have its number.
        _PARSED[id(schema)] = (schema, parse_schema(schema.plain))
    return _PARSED[id(schema)][1]


def _json(datum: Any) -> str:
    """The datum as JSON; the three numbers that JSON has no digits for as words, which is how Debezium writes them."""
    try:
        return json.dumps(datum, ensure_ascii=False, separators=(",", ":"), default=_base64, allow_nan=False)
    except ValueError:
        return json.dumps(_spoken(datum), ensure_ascii=False, separators=(",", ":"), default=_base64)


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode()


def _spoken(value: Any) -> Any:
    """The same value with the numbers that JSON has no digits for as words."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _spoken(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_spoken(item) for item in value]
    return value
