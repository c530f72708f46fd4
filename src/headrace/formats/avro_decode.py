"""Avro message parts to JSON texts with their Connect schemas: what JsonConverter would have written for them.

Batch DataFrames (so pipelines and `foreachBatch` too): the driver collects the heads that occur and fetches their
schemas. Where they are few and the messages of each are many, spark-avro's `from_avro` reads each message with its own,
found by a search tree over the heads. Batches of many schemas or of few messages for each, streaming DataFrames, and
sessions without spark-avro: Arrow batches and fastavro in Python workers, about a tenth of the speed; only those of a
streaming DataFrame ask the registry themselves.

**Bytes that are no such datum.** Behind each datum stands a mark that must be found where the schema says that the
datum ends, so a datum that is cut short, or goes on, is known. Avro's Java library allocates what a length in the bytes
says before it looks whether so much is there, which can end an executor. So a datum is first passed over without
allocating, unless the session sets Avro's own limits (`org.apache.avro.limits.string.maxLength` and
`bytes.maxLength`); sessions that Headrace starts set them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.changes.typed import literal
from headrace.errors import FormatError, HeadraceError
from headrace.formats.avro_framing import Framing, Side
from headrace.formats.avro_schema import WriterSchema, writer_schema
from headrace.formats.schema_registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_HEADS = 20_000
"""How many distinct schema ids a batch may name; more means that the framing is another one."""

MESSAGES_PER_SCHEMA = 2_000
"""How many messages of a schema, on average, are worth a `from_avro` of its own: Spark reads the schema's text again
and again while it plans, which takes as long as Python takes for so many messages."""

MOST_READERS = 16
"""How many schemas one plan reads so. Each is a part of it, which Spark copies while it plans: with 150 of them it took
minutes and gigabytes."""

# The greatest long as Avro writes it: a mark of ten bytes that a datum hardly holds by chance.
MARK = bytes.fromhex("feffffffffffffffff01")
MARK_VALUE = 2**63 - 1
_MARK_END = f',"mark":{MARK_VALUE}}}'
_SIDES: tuple[Side, ...] = ("key", "value")
_LIMIT = "org.apache.avro.limits."


@dataclass(frozen=True)
class Resolved:
    """What the head of a message part stands for: a schema, or the sentence why there is none."""

    schema: WriterSchema | None
    problem: str | None = None


@dataclass(frozen=True)
class Schemas:
    """Where the schemas of heads come from; picklable.

    Args:
        framing: how heads name schemas.
        registry: who knows them.
        key: the Avro schema given for keys (framing `none`).
        value: the same for values.
    """

    framing: Framing
    registry: Registry
    key: str | None = None
    value: str | None = None

    def resolved(self, heads: Sequence[tuple[Side, bytes]]) -> dict[tuple[Side, bytes], Resolved]:
        """What each head stands for. Asks the registry for all that this process has not seen.

        Raises:
            ConnectError: the registry can't be asked.
        """
        refs = {head: self.framing.ref(head) for _, head in heads}
        texts = self.registry.fetched(ref for ref in refs.values() if ref is not None)
        found = {}
        for side, head in heads:
            ref = refs[head]
            if self.framing.is_given(head):
                text, name = self.key if side == "key" else self.value, f"given for the {side}"
            elif ref is None:
                found[side, head] = Resolved(None, f"The header that names the {side}'s schema holds no id.")
                continue
            else:
                text, name = texts.get(ref), f"of {ref}"
            if text is None:
                found[side, head] = Resolved(None, f"The schema registry knows no schema {name} (of the {side}).")
                continue
            try:
                found[side, head] = Resolved(writer_schema(text))
            except FormatError as error:
                found[side, head] = Resolved(None, f"The schema {name} can't be used to read the {side}: {error}")
        return found

    def asked(self, heads: Sequence[tuple[Side, bytes]]) -> Schemas:
        """The same, with the schemas of these heads in it, so that no Python worker asks the registry."""
        refs = {ref for _, head in heads if (ref := self.framing.ref(head)) is not None}
        texts = {ref.value: text for ref, text in self.registry.fetched(refs).items()}
        # Ids of two kinds may be the same number.
        if self.registry.url is None or len({ref.value for ref in refs}) < len(refs):
            return self
        return replace(self, registry=Registry(schemas=texts))


def framed(messages: DataFrame, framing: Framing) -> DataFrame:
    """Kafka's columns, and `key_head`, `key_body`, `value_head`, `value_body` and `problem` beside them."""
    columns = [f"{framing.head(side)} as {side}_head" for side in _SIDES]
    columns += [f"{framing.body(side)} as {side}_body" for side in _SIDES]
    problem = f"coalesce({framing.problem('value')}, {framing.problem('key')})"
    return messages.selectExpr("*", *columns, f"{problem} as problem")


@dataclass(frozen=True)
class Heads:
    """What occurs in a batch.

    Args:
        found: the heads, by side.
        held: whether a value holds the bytes that were looked for.
        messages: how many messages there are.
    """

    found: tuple[tuple[Side, bytes], ...]
    held: bool = False
    messages: int = 0


def heads_of(parts: DataFrame, sought: bytes = b"") -> Heads:
    """The heads that occur in a batch, and whether a value holds the bytes, by a job over it.

    Raises:
        HeadraceError: there are more than `MOST_HEADS` pairs of them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    holds = f"coalesce(contains(value_body, X'{sought.hex()}'), false)" if sought else "false"
    grouped = parts.selectExpr("key_head", "value_head", f"{holds} as held").groupBy("key_head", "value_head")
    counted = grouped.agg(F.max("held").alias("held"), F.count("*").alias("messages"))
    lines = counted.limit(MOST_HEADS + 1).collect()
    if len(lines) > MOST_HEADS:
        raise HeadraceError(
            f"The batch names more than {MOST_HEADS} Avro schemas.",
            remedy="Check the option 'framing', or read less at once.",
        )
    pairs = ((side, line[f"{side}_head"]) for line in lines for side in _SIDES)
    found = sorted({(side, bytes(head)) for side, head in pairs if head is not None})
    return Heads(tuple(found), any(line.held for line in lines), sum(line.messages for line in lines))


def with_json(parts: DataFrame, schemas: Schemas) -> DataFrame:
    """`key_json` and `value_json` beside the columns of `framed`: `{"schema":..,"payload":..}`, as bytes.

    `problem` then also says what is wrong with a part that has a head; its JSON is null.
    """
    if parts.isStreaming or not has_spark_avro(parts):
        return _by_arrow(parts, schemas)
    heads = heads_of(parts)
    found = schemas.resolved(heads.found)
    readable = sum(resolved.schema is not None for resolved in found.values())
    if readable > MOST_READERS or heads.messages < MESSAGES_PER_SCHEMA * readable:
        return _by_arrow(parts, schemas.asked(heads.found))
    careful = not avro_is_limited(parts)
    texts, problems = [], []
    for side in _SIDES:
        leaves = {}
        reasons = {}
        for (of, head), resolved in found.items():
            if of != side:
                continue
            if resolved.schema is None:
                reasons[head] = literal(resolved.problem or "")
            else:
                leaves[head] = _json_of(f"{side}_body", resolved.schema, careful=careful)
                reasons[head] = literal(_no_datum(side))
        # A lambda is interpreted: code made for hundreds of schemas would take longer than all else.
        tree = search_tree("h", leaves)
        texts.append(f"get(transform(array({side}_head), h -> {tree}), 0) as {side}_json")
        reason = search_tree("h", reasons)
        why = f"get(transform(array({side}_head), h -> {reason}), 0)"
        problems.append(f"if({side}_head is not null and {side}_json is null, {why}, null)")
    spelled = parts.selectExpr("*", *texts)
    columns = [name for name in parts.columns if name != "problem"]
    return spelled.selectExpr(
        *columns, "key_json", "value_json", f"coalesce(problem, {problems[1]}, {problems[0]}) as problem"
    )


def _no_datum(side: Side) -> str:
    return f"The {side} is no Avro datum of its schema."


def _bytes(head: bytes) -> str:
    return f"X'{head.hex()}'"


def search_tree(
    head: str, leaves: Mapping[Any, str], otherwise: str = "null", spell: Callable[[Any], str] = _bytes
) -> str:
    """Spark SQL that chooses an expression by comparing keys, in as many steps as the logarithm of their number.

    Args:
        head: SQL of what is looked for.
        leaves: SQL by key.
        otherwise: SQL for what is none of the keys.
        spell: a key as SQL literal; SQL must order them as Python does.
    """
    ordered = sorted(leaves)

    def tree(low: int, high: int) -> str:
        if high - low == 1:
            key = ordered[low]
            return f"if({head} = {spell(key)}, {leaves[key]}, {otherwise})"
        middle = (low + high) // 2
        return f"if({head} < {spell(ordered[middle])}, {tree(low, middle)}, {tree(middle, high)})"

    return tree(0, len(ordered)) if ordered else otherwise


def marked_schema(plain: Any, before: int = 0) -> str:
    """The schema of a datum with the mark behind it, and that many bytes of framing before it."""
    fields = [{"name": "payload", "type": plain}, {"name": "mark", "type": "long"}]
    if before:
        fields = [{"name": "head", "type": {"type": "fixed", "name": "head", "size": before}}, *fields]
    return json.dumps({"type": "record", "name": "headrace", "fields": fields}, ensure_ascii=False)


_ONLY_MARK = json.dumps({"type": "record", "name": "headrace", "fields": [{"name": "mark", "type": "long"}]})
_PERMISSIVE = "'mode', 'PERMISSIVE'"


def passes(marked: str, schema: str) -> str:
    """Spark SQL: whether a marked datum can be passed over to its end, which allocates nothing."""
    skipped = f"from_avro({marked}, {literal(schema)}, map({_PERMISSIVE}, 'avroSchema', {literal(_ONLY_MARK)}))"
    return f"coalesce({skipped}.mark = {MARK_VALUE}L, false)"


def _json_of(body: str, schema: WriterSchema, *, careful: bool) -> str:
    """Spark SQL for the JSON of a datum as bytes; null where the bytes are none."""
    text = marked_schema(schema.plain)
    marked = f"concat({body}, X'{MARK.hex()}')"
    read = f"from_avro({marked}, {literal(text)}, map({_PERMISSIVE}))"
    written = f"to_json({read}, map('ignoreNullFields', 'false'))"
    if careful:
        written = f"if({passes(marked, text)}, {written}, null)"
    opening = literal('{"schema":' + schema.connect_text + ",")
    cut = f"substr(cast(t as binary), 2, octet_length(t) - {2 + len(_MARK_END) - 1})"
    # A replacement character that the bytes do not hold stands for bytes that are no UTF-8.
    unreadable = f"(contains(t, '\\uFFFD') and not contains({body}, X'EFBFBD'))"
    made = f"concat(cast({opening} as binary), {cut}, X'7D')"
    return (
        f"get(transform(array({written}), t -> if(endswith(t, '{_MARK_END}') and not {unreadable}, {made}, null)), 0)"
    )


def has_spark_avro(frame: DataFrame) -> bool:
    """Whether the session knows `from_avro`."""
    from pyspark.errors import PySparkException

    try:
        return "a" in frame.sparkSession.range(0).selectExpr("from_avro(X'02', '\"int\"', map()) as a").columns
    except PySparkException:
        return False


def avro_is_limited(frame: DataFrame) -> bool:
    """Whether the session's Java processes limit what Avro allocates."""
    conf = frame.sparkSession.conf
    where = "driver" if (conf.get("spark.master", "") or "").startswith("local") else "executor"
    given = [conf.get(f"spark.{where}.{kind}JavaOptions", "") or "" for kind in ("default", "extra")]
    return all(f"{_LIMIT}{kind}.maxLength" in " ".join(given) for kind in ("string", "bytes"))


def _by_arrow(parts: DataFrame, schemas: Schemas) -> DataFrame:
    """The same by Arrow batches; Python reads each message."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    from headrace.formats.avro_rows import JsonParts

    kept = [name for name in parts.columns if name != "problem"]
    out = StructType(
        [
            *(parts.schema[name] for name in kept),
            StructField("key_json", BinaryType()),
            StructField("value_json", BinaryType()),
            StructField("problem", StringType()),
        ]
    )
    return parts.mapInArrow(JsonParts(schemas, tuple(kept)), out)
