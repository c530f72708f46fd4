"""Spark SQL for maps and JSON texts, for the formats that are still made of it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.changes.typed import literal


def names_sql(names: Sequence[str]) -> str:
    """Spark SQL for an array of names."""
    return f"array({', '.join(map(literal, names))})" if names else "cast(array() as array<string>)"


def each_name_once(image: str) -> str:
    """Spark SQL for a map that was read from JSON with each name once: where an object repeats one, the last counts.

    The parser keeps them all, and Spark's functions of maps stop the query at such a map.
    """
    last = f"array_position(reverse(map_keys({image})), e.key) = size({image}) - i"
    return (
        f"if(size(array_distinct(map_keys({image}))) < size({image}), "
        f"map_from_entries(filter(map_entries({image}), (e, i) -> {last})), {image})"
    )


def overlay(image: str, other: str) -> str:
    """Spark SQL for a map with the values of another laid over it; names that only the other has come last."""
    laid = f"transform_values({image}, (k, v) -> if(map_contains_key({other}, k), {other}[k], v))"
    extra = f"map_filter({other}, (k, v) -> not map_contains_key({image}, k))"
    return (
        f"case when map_keys({image}) = map_keys({other}) then {other} when size({other}) = 0 then {image} "
        f"when forall(map_keys({other}), n -> map_contains_key({image}, n)) then {laid} "
        f"else map_concat({laid}, {extra}) end"
    )


def changed_of_maps() -> str:
    """Spark SQL for what an update's old image has other than the new one, and what the source says it changed."""
    named = "coalesce(array_contains(changed, {}), false)"
    differs = "not (map_values(before)[i] <=> map_values(after)[i])"
    aligned = (
        f"map_from_arrays(filter(map_keys(before), (k, i) -> {differs} or {named.format('k')}), "
        f"filter(map_values(before), (v, i) -> {differs} or {named.format('map_keys(before)[i]')}))"
    )
    apart = (
        f"map_filter(before, (k, v) -> not map_contains_key(after, k) or not (v <=> after[k]) or {named.format('k')})"
    )
    return (
        "case when before is null then null when after is null then before "
        f"when map_keys(before) = map_keys(after) then {aligned} else {apart} end"
    )


def json_text(text: str) -> str:
    """Spark SQL for a text as a JSON string; null stays null."""
    escaped = f"to_json(array({text}))"
    return (
        rf"if({text} rlike '[\"\\\\\\x00-\\x1f]', substr({escaped}, 2, length({escaped}) - 2), "
        rf"concat('\"', {text}, '\"'))"
    )
