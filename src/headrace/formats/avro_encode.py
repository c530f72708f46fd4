"""JSON messages with Connect schemas to Avro messages: what an Avro converter writes in JsonConverter's place.

Batch DataFrames: the driver collects the schemas that occur, registers them, and spark-avro's `to_avro` writes each
message with its own; the messages are made twice, so persist what is expensive before. Streaming DataFrames, and
sessions without spark-avro: Arrow batches and fastavro in Python workers, which register the schemas that they meet.

Subjects are named after the topic (`<topic>-key`, `<topic>-value`). A registration is repeated without harm.
"""

from __future__ import annotations

import base64
import io
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.changes.typed import literal, quote
from headrace.formats.avro_decode import has_spark_avro, search_tree
from headrace.formats.avro_framing import Side
from headrace.formats.avro_rows import parsed_schema
from headrace.formats.avro_schema import WriterSchema, avro_text, writer_schema
from headrace.formats.schema_registry import Registered, Registry

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_NAMED = re.compile("\x02([0-9]+)\x03")
_SIDES: tuple[Side, ...] = ("key", "value")
_ENVELOPE = ',"payload":'
_SPARK = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "binary",
}
# Headers whose value is a key, which no Avro converter writes as Avro.
_KEY_HEADERS = ("__debezium.newkey", "__debezium.oldkey")
_HEADERS = "array<struct<key:string,value:binary>>"


def spark_type(connect: Mapping[str, Any]) -> str:
    """The Spark type, as DDL, of a Connect schema's values."""
    kind = connect["type"]
    if kind == "struct":
        fields = (f"{quote(f['field'])}:{spark_type(f)}" for f in connect["fields"])
        return f"struct<{','.join(fields)}>"
    if kind == "array":
        return f"array<{spark_type(connect['items'])}>"
    if kind == "map":
        return f"map<string,{spark_type(connect['values'])}>"
    return _SPARK[kind]


@dataclass(frozen=True)
class Written:
    """One schema that is written.

    Args:
        connect: the Connect schema.
        prefix: the bytes before each datum.
        headers: the headers that name the schema.
    """

    connect: Mapping[str, Any]
    prefix: bytes
    headers: tuple[tuple[str, bytes], ...]

    @cached_property
    def avro(self) -> WriterSchema:
        """The schema as Avro."""
        return writer_schema(avro_text(self.connect))


@dataclass(frozen=True)
class ShortTexts:
    """Long texts under short names: messages that become Avro carry those in place of their schemas, which are longer
    than they are. A name holds characters that stand in no JSON.

    Args:
        names: the names by text.
    """

    names: dict[str, str] = field(default_factory=dict)

    def short(self, text: str) -> str:
        """The name of a text."""
        return self.names.setdefault(text, f"\x02{len(self.names)}\x03")

    def whole(self, text: str) -> str:
        """A text with the texts in place of their names."""
        texts = list(self.names)
        return _NAMED.sub(lambda found: texts[int(found[1])], text)


@dataclass(frozen=True)
class AvroWriter:
    """How messages are written; picklable.

    Args:
        framing: one of the names of `avro_framing.FRAMINGS`.
        registry: where schemas are registered.
        texts: what stands for parts of schemas in the messages.
    """

    framing: str
    registry: Registry
    texts: ShortTexts = field(default_factory=ShortTexts)

    def written(self, topic: str, side: Side, opening: str) -> Written:
        """Register a schema, the text of a message up to its payload.

        Raises:
            ConnectError: the registry can't be asked, or refuses the schema.
            OptionError: a mapping that lacks it.
        """
        connect = json.loads(self.texts.whole(opening) + "}")["schema"]
        if self.framing == "none":
            return Written(connect, b"", ())
        ids = self.registry.registered(f"{topic}-{side}", avro_text(connect))
        return Written(connect, self._prefix(ids), self._headers(ids, side))

    def _prefix(self, ids: Registered) -> bytes:
        if self.framing == "confluent":
            return b"\0" + ids.id.to_bytes(4, "big")
        return b"\0" + ids.global_or_id.to_bytes(8, "big") if self.framing == "apicurio8" else b""

    def _headers(self, ids: Registered, side: Side) -> tuple[tuple[str, bytes], ...]:
        if self.framing == "confluent-header":
            named = b"\0" + ids.id.to_bytes(4, "big") if ids.guid is None else b"\1" + uuid.UUID(ids.guid).bytes
            return ((f"__{side}_schema_id", named),)
        if self.framing == "apicurio-header":
            global_id = ids.global_or_id.to_bytes(8, "big")
            return ((f"apicurio.{side}.globalId", global_id), (f"apicurio.{side}.encoding", b"BINARY"))
        return ()

    def encode(self, messages: DataFrame) -> DataFrame:
        """The messages with Avro in place of `{"schema":..,"payload":..}`; all other columns as they are."""
        parts = messages.selectExpr(
            *(f"{_plain_headers() if name == 'headers' else name} as {name}" for name in messages.columns),
            *(f"substring_index(cast({side} as string), '{_ENVELOPE}', 1) as {side}_opening" for side in _SIDES),
        )
        if messages.isStreaming or not has_spark_avro(messages):
            arrow = parts.mapInArrow(AvroParts(self), messages.schema)
            return arrow.select(*messages.columns)
        return self._by_expressions(parts, messages.columns)

    def _by_expressions(self, parts: DataFrame, columns: list[str]) -> DataFrame:
        pairs = ", ".join(f"named_struct('side', '{side}', 'opening', {side}_opening)" for side in _SIDES)
        found = parts.selectExpr("topic", f"inline(array({pairs}))").where("opening is not null").distinct()
        known = found.selectExpr("*", "xxhash64(topic, opening) as h").collect()
        selected: dict[str, str] = {}
        headers = ["coalesce(headers, array())"]
        for side in _SIDES:
            made = {row.h: self.written(row.topic, side, row.opening) for row in known if row.side == side}
            leaves = {h: _datum(side, one) for h, one in made.items()}
            tree = search_tree("h", leaves, spell=_long)
            hash_of = f"xxhash64(topic, {side}_opening)"
            # A lambda is interpreted: code made for hundreds of schemas would take longer than all else.
            selected[side] = f"if({side} is null, null, get(transform(array({hash_of}), h -> {tree}), 0))"
            if any(one.headers for one in made.values()):
                named = search_tree("h", {h: _header_array(one.headers) for h, one in made.items()}, spell=_long)
                empty = f"cast(array() as {_HEADERS})"
                headers.append(f"if({side} is null, {empty}, get(transform(array({hash_of}), h -> {named}), 0))")
        if len(headers) > 1:
            selected["headers"] = f"concat({', '.join(headers)})"
        return parts.selectExpr(*(f"{selected.get(name, name)} as {name}" for name in columns))


def _long(number: int) -> str:
    return f"({number}L)"


def _plain_headers() -> str:
    """Spark SQL: the headers, where those that hold a key hold it without its schema."""
    names = ", ".join(map(literal, _KEY_HEADERS))
    opening = f"octet_length(substring_index(cast(x.value as string), '{_ENVELOPE}', 1))"
    start = f"{opening} + {len(_ENVELOPE) + 1}"
    cut = f"substr(x.value, {start}, octet_length(x.value) - {opening} - {len(_ENVELOPE) + 1})"
    plain = f"if(x.key in ({names}), named_struct('key', x.key, 'value', {cut}), x)"
    return f"cast(transform(headers, x -> {plain}) as {_HEADERS})"


def _datum(side: Side, one: Written) -> str:
    start = f"octet_length({side}_opening) + {len(_ENVELOPE) + 1}"
    length = f"octet_length({side}) - octet_length({side}_opening) - {len(_ENVELOPE) + 1}"
    payload = f"cast(substr({side}, {start}, {length}) as string)"
    kind = literal(spark_type(one.connect))
    schema = literal(json.dumps(one.avro.plain, ensure_ascii=False))
    datum = f"to_avro(from_json({payload}, {kind}, map('mode', 'FAILFAST')), {schema})"
    return f"concat(X'{one.prefix.hex()}', {datum})" if one.prefix else datum


def _header_array(headers: Iterable[tuple[str, bytes]]) -> str:
    entries = ", ".join(f"named_struct('key', {literal(name)}, 'value', X'{value.hex()}')" for name, value in headers)
    return f"cast(array({entries}) as {_HEADERS})"


@dataclass
class AvroParts:
    """For `mapInArrow`: the same in Python workers. Per-row Python, like all that fastavro does."""

    writer: AvroWriter
    _known: dict[tuple[str, Side, str], Written] = field(default_factory=dict)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The written batches, without the columns of openings."""
        import pyarrow as pa

        for batch in batches:
            names = [name for name in batch.schema.names if not name.endswith("_opening")]
            columns = {name: batch.column(name) for name in names}
            topics = columns["topic"].to_pylist()
            headers: list[list[dict[str, Any]]] = [list(h or ()) for h in columns["headers"].to_pylist()]
            for side in _SIDES:
                openings = batch.column(f"{side}_opening").to_pylist()
                data: list[bytes | None] = columns[side].to_pylist()
                for n, (topic, opening) in enumerate(zip(topics, openings, strict=True)):
                    whole = data[n]
                    if whole is None or opening is None:
                        continue
                    one = self._written(topic, side, opening)
                    data[n] = one.prefix + _encoded(one, whole[len(opening.encode()) + len(_ENVELOPE) : -1])
                    headers[n] += [{"key": name, "value": value} for name, value in one.headers]
                columns[side] = pa.array(data, columns[side].type)
            if self.writer.framing.endswith("-header"):
                columns["headers"] = pa.array(headers, columns["headers"].type)
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=names)

    def _written(self, topic: str, side: Side, opening: str) -> Written:
        key = (topic, side, opening)
        if key not in self._known:
            self._known[key] = self.writer.written(*key)
        return self._known[key]


def _encoded(one: Written, payload: bytes) -> bytes:
    from fastavro import schemaless_writer

    stream = io.BytesIO()
    schemaless_writer(stream, parsed_schema(one.avro), _value(one.connect, json.loads(payload)))
    return stream.getvalue()


def _value(connect: Mapping[str, Any], value: Any) -> Any:
    """The Python value that fastavro writes, from parsed JSON."""
    if value is None:
        return None
    kind = connect["type"]
    if kind == "struct":
        return {f["field"]: _value(f, value.get(f["field"])) for f in connect["fields"]}
    if kind == "array":
        return [_value(connect["items"], item) for item in value]
    if kind == "map":
        return {name: _value(connect["values"], item) for name, item in value.items()}
    if kind == "bytes":
        return base64.b64decode(value)
    return float(value) if kind in ("float", "double") else value
