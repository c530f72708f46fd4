"""Canal's values as canonical text, driven by a plan: Spark SQL whose cost does not grow with the number of tables.

Most columns need nothing, because Canal writes text already. A plan names the others: an enum is the number of its
label (from 1), a set a mask of its labels, bytes are written as the characters of the same numbers (ISO-8859-1), a
boolean is a number, and a `timestamp` is local to the zone of the server's session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headrace.changes import Column
from headrace.changes.typed import literal
from headrace.formats.canal_types import MysqlType

PLAN = "array<struct<name:string,code:string,labels:array<string>>>"
"""The Spark type of a plan: one entry per column that needs more than its text."""

Entry = tuple[str, str, list[str] | None]

_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?\z"
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?Z\z"
_LARGEST_MASK = "18446744073709551615BD"


def entry_of(column: Column, *, base64: bool = False) -> Entry | None:
    """The plan's entry for a column; None where the wire's text is the canonical one.

    Args:
        column: with MySQL's type as its native type, where known.
        base64: whether bytes come as base64 already.
    """
    kind = column.logical.kind
    found = MysqlType.parse(column.native_type)
    if found.labels:
        return column.name, found.word, list(found.labels)
    if kind == "bytes" and not base64:
        return column.name, "bytes", None
    if kind in ("boolean", "instant"):
        return column.name, kind, None
    return None


def plan_of(columns: Iterable[Column], *, base64: bool = False) -> list[Entry] | None:
    """The plan of a table; None where no column needs one."""
    return [entry for column in columns if (entry := entry_of(column, base64=base64)) is not None] or None


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


def enum_text(value: str, labels: str) -> str:
    """Spark SQL for an enum's label. 0 is MySQL's empty text for a refused value; what is no number of a label stays,
    because other writers write labels."""
    number = f"coalesce(try_cast({value} as int), -1)"
    return (
        f"case when {value} = '0' then '' when {value} rlike '^[0-9]+\\\\z' and {number} between 1 and size({labels}) "
        f"then get({labels}, {number} - 1) else {value} end"
    )


def set_text(value: str, labels: str) -> str:
    """Spark SQL for the labels of a set's mask, with commas between; what is no mask of these labels stays."""
    mask = f"coalesce(try_cast({value} as decimal(20,0)), -1BD)"
    bits = f"conv({value}, 10, 2)"
    held = f"filter({labels}, (l, i) -> substr({bits}, -(i + 1), 1) = '1' and i < length({bits}))"
    return (
        f"case when {value} rlike '^[0-9]+\\\\z' and {mask} between 0 and {_LARGEST_MASK} "
        f"and length({bits}) <= greatest(size({labels}), 1) and ({value} = '0' or size({labels}) > 0) "
        f"then array_join({held}, ',') else {value} end"
    )


def is_bytes(value: str) -> str:
    """Spark SQL: whether each character of a text stands for a byte."""
    return rf"not {value} rlike '[^\\u0000-\\u00FF]'"


def bytes_value(value: str) -> str:
    """Spark SQL for the bytes of a text; null where a character stands for none."""
    return f"if({is_bytes(value)}, encode({value}, 'ISO-8859-1'), null)"


def bytes_text(value: str) -> str:
    """Spark SQL for the base64 of a text; null where a character stands for none."""
    return f"if({is_bytes(value)}, base64(encode({value}, 'ISO-8859-1')), null)"


def boolean_text(value: str) -> str:
    """Spark SQL: MySQL's booleans are numbers, and every number but 0 is true."""
    number = rf"{value} rlike '^-?[0-9]+\\z'"
    return f"case when {value} in ('0', 'false') then 'false' when {number} then 'true' else {value} end"


def instant_text(value: str, zone: str) -> str:
    """Spark SQL for a local timestamp of a zone as an instant with the digits that it has.

    What has an offset already, and what is no time (a zero date), stays. A time that a change of clocks repeats is
    taken for the first.
    """
    # The fraction is put back as it was: a timestamp would cut it to six digits, and write fewer.
    local = f"try_cast(substring_index({value}, '.', 1) as timestamp_ntz)"
    moment = f"convert_timezone({literal(zone)}, 'UTC', {local})"
    fraction = f"regexp_extract({value}, '[.][0-9]+$', 0)"
    return (
        f"if({value} rlike {literal(_LOCAL)} and {local} is not null, "
        f"concat(replace(cast({moment} as string), ' ', 'T'), {fraction}, 'Z'), {value})"
    )


def values_of(image: str, plan: str, zone: str | None) -> str:
    """Spark SQL for an image as canonical texts.

    Args:
        image: SQL for the map as it came.
        plan: SQL for the plan; where it is null the map stays as it is.
        zone: the zone of the texts of columns that are instants; UTC where None.
    """
    return _planned(image, plan, lambda code: canonical_of(code, "v", "p.labels", zone))


def wire_of(image: str, plan: str, zone: str | None) -> str:
    """Spark SQL for an image as Canal writes its texts: `values_of` the other way."""
    return _planned(image, plan, lambda code: wire_text(code, "v", "p.labels", zone))


def _planned(image: str, plan: str, make: Callable[[str], str]) -> str:
    branches = " ".join(f"when '{code}' then {make(code)}" for code in CODES)
    entry = f"get({plan}, cast(array_position({plan}.name, k) as int) - 1)"
    # A lambda over one entry, so that it is looked up once.
    value = f"if(v is null, v, transform(array({entry}), p -> case p.code {branches} else v end)[0])"
    return f"if({plan} is null, {image}, transform_values({image}, (k, v) -> {value}))"


CODES = ("enum", "set", "bytes", "boolean", "instant")


def canonical_of(code: str, value: str, labels: str, zone: str | None) -> str:
    """Spark SQL for the canonical text of a value of a plan's code."""
    if code == "enum":
        return enum_text(value, labels)
    if code == "set":
        return set_text(value, labels)
    if code == "bytes":
        return bytes_text(value)
    return boolean_text(value) if code == "boolean" else instant_text(value, zone or "UTC")


def wire_text(code: str, value: str, labels: str, zone: str | None) -> str:
    """Spark SQL for what Canal writes for a canonical text of a plan's code; a text that does not fit stays."""
    if code == "enum":
        number = f"array_position({labels}, {value})"
        return f"case when {number} > 0 then cast({number} as string) when {value} = '' then '0' else {value} end"
    if code == "set":
        parts = f"split({value}, ',', -1)"
        digits = f"array_join(reverse(transform({labels}, l -> if(array_contains({parts}, l), '1', '0'))), '')"
        return (
            f"case when {value} = '' then '0' when size({labels}) <= 64 and "
            f"forall({parts}, x -> array_contains({labels}, x)) then conv({digits}, 2, 10) else {value} end"
        )
    if code == "bytes":
        return f"coalesce(decode(try_to_binary({value}, 'base64'), 'ISO-8859-1'), {value})"
    if code == "boolean":
        return f"case {value} when 'true' then '1' when 'false' then '0' else {value} end"
    return local_text(value, zone)


def local_text(value: str, zone: str | None) -> str:
    """Spark SQL for an instant's text (`...T...Z`) as a local timestamp of a zone, UTC where None; others stay."""
    whole = f"substr({value}, 1, 19)"
    local = f"replace({whole}, 'T', ' ')"
    if zone not in (None, "UTC"):
        moved = f"convert_timezone('UTC', {literal(zone or '')}, try_cast({whole} as timestamp_ntz))"
        local = f"cast({moved} as string)"
    fraction = f"regexp_extract({value}, '[.][0-9]+', 0)"
    return f"if({value} rlike {literal(_INSTANT)}, coalesce(concat({local}, {fraction}), {value}), {value})"


def holds_other_than_bytes(image: str, plan: str) -> str:
    """Spark SQL: whether a column of bytes holds a character that stands for none."""
    names = f"transform(filter({plan}, p -> p.code = 'bytes'), p -> p.name)"
    return f"exists({names}, n -> {image}[n] is not null and not ({is_bytes(f'{image}[n]')}))"
