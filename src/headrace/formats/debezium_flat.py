"""Flat records of Debezium's ExtractNewRecordState: a row with added fields, as an event.

Source: spec/format_debezium.md, ExtractNewRecordState; recorded messages of Debezium 3.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.changes.typed import literal
from headrace.formats.exact_json import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_events(parsed: DataFrame, event: str, prefix: str, fields: str) -> DataFrame:
    """The column `v`, a map of a flat record's fields, as the struct of an event.

    Without an added field `op` a record is a create, or a delete where `deleted` says so. Messages of other topics,
    which the transform passes unchanged, are read as they are.

    Args:
        parsed: has `v` and the value's JSON text as `vp`.
        event: the Spark type of the struct.
        prefix: what the names of added fields begin with.
        fields: SQL for the map with its values spelled.
    """
    added = f"startswith(k, {literal(prefix)})"
    of_source = f"startswith(k, {literal(prefix + 'source_')})"
    own = ", ".join(literal(prefix + name) for name in ("op", "deleted", "ts_ms"))
    source = f"transform_keys(map_filter(f, (k, x) -> {of_source}), (k, x) -> substr(k, {len(prefix) + 8}))"
    direct = (
        f"transform_keys(map_filter(f, (k, x) -> {added} and not {of_source} and k not in ({own})), "
        f"(k, x) -> substr(k, {len(prefix) + 1}))"
    )
    facts = f"map_concat(map_filter({direct}, (k, x) -> not array_contains(map_keys({source}), k)), {source})"
    row = f"map_filter(f, (k, x) -> not {added})"
    deleted = f"coalesce(f[{literal(prefix + 'deleted')}] = 'true', false)"
    op = f"if({deleted}, 'd', coalesce(f[{literal(prefix + 'op')}], 'c'))"
    transaction = (
        f"if(f[{literal(prefix + 'transaction_id')}] is null, null, named_struct('id', "
        f"f[{literal(prefix + 'transaction_id')}], 'total_order', "
        f"try_cast(f[{literal(prefix + 'transaction_total_order')}] as bigint), 'data_collection_order', "
        f"try_cast(f[{literal(prefix + 'transaction_data_collection_order')}] as bigint)))"
    )
    given = {
        "before": f"if({op} = 'd', {row}, null)",
        "after": f"if({op} = 'd' or {op} = 't', null, {row})",
        "source": facts,
        "op": op,
        "transaction": transaction,
        "ts_ms": f"try_cast(f[{literal(prefix + 'ts_ms')}] as bigint)",
    }
    names = [part.split(":", 1)[0].strip().split(" ", 1)[0] for part in _members(event)]
    struct = ", ".join(f"{literal(name)}, {given.get(name, 'null')}" for name in names)
    control = (
        "map_contains_key(f, 'source') and (map_contains_key(f, 'tableChanges') or map_contains_key(f, 'op')) "
        "or f['status'] in ('BEGIN', 'END') and map_contains_key(f, 'event_count') and map_contains_key(f, 'id') "
        "or map_contains_key(f, 'ts_ms') and size(f) = 1 "
        "or map_contains_key(f, 'aggregate_type') and map_contains_key(f, 'additional_data')"
    )
    inner = event.removeprefix("struct<").removesuffix(">")
    passed = f"from_json(vp, {literal(inner)}, {OPTIONS})"
    made = f"cast(named_struct({struct}) as {event})"
    once = "size(array_distinct(map_keys(f))) = size(f)"
    others = [name for name in parsed.columns if name != "v"]
    return parsed.selectExpr(*others, f"{fields} as f").selectExpr(
        *others, f"case when f is null or not {once} then null when {control} then {passed} else {made} end as v"
    )


def _members(struct: str) -> list[str]:
    """The members of a struct's DDL, at its first level."""
    found, depth, start = [], 0, 0
    text = struct.removeprefix("struct<").removesuffix(">")
    for at, char in enumerate(text):
        depth += {"<": 1, ">": -1}.get(char, 0)
        if char == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()]
