"""The plan of a message of one known table, made by Spark SQL from the schema in the message, or from the options.

Elsewhere the schemas of a batch are collected and read once each; here there is one table, and few messages need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.changes import TableSchema
from headrace.changes.typed import literal
from headrace.formats import debezium_texts as texts
from headrace.formats.debezium_columns import FastColumn
from headrace.formats.debezium_fields import NAMED_FORMS, PLAIN_FORMS, field_text
from headrace.formats.debezium_parts import parts
from headrace.formats.debezium_structures import PLAN_DDL

_FORM = "type:string,name:string,parameters:map<string,string>"
_FIELD = f"struct<field:string,{_FORM},items:struct<{_FORM}>>"
_SCHEMA = f"`schema` struct<fields:array<struct<field:string,fields:array<{_FIELD}>>>>"
_FLAT = f"`schema` struct<fields:array<{_FIELD}>>"
_RELEVANT = ", ".join(map(literal, NAMED_FORMS))


def same_forms(opening: str, columns: Sequence[FastColumn]) -> str:
    """Spark SQL: whether a message's schema says of each column the form that the options say.

    Args:
        opening: SQL for the value up to the end of its schema, without the last two braces.
        columns: the table's columns.
    """
    # The row's fields come first, so that the rest of the schema need not be read.
    before = ',"field":"before"'
    short = f"concat(substring_index({opening}, {literal(before)}, 1), '}}]}}}}')"
    text = f"if(contains({opening}, {literal(before)}), {short}, concat({opening}, '}}}}'))"
    fields = f"from_json({text}, {literal(_SCHEMA)}).schema.fields[0].fields"
    # How wide a number is does not matter: one that does not fit is found by the parse.
    plain = (
        "case when startswith(f.type, 'int') then 'int' when f.type in ('float', 'double') then 'float' else f.type end"
    )
    form = f"if(f.name in ({_RELEVANT}), f.name, {plain})"
    said = f"transform({fields}, f -> concat_ws(' ', f.field, {form}, f.parameters['scale']))"
    wanted = ", ".join(literal(_said(column)) for column in columns)
    return f"{said} = array({wanted})"


def _said(column: FastColumn) -> str:
    wire = column.wire
    kind = "int" if wire["type"].startswith("int") else {"double": "float"}.get(wire["type"], wire["type"])
    form = wire["name"] if wire.get("name") in NAMED_FORMS else kind
    scale = (wire.get("parameters") or {}).get("scale")
    return " ".join(part for part in (column.name, form, scale) if part is not None)


def single_plan(schema: TableSchema, columns: Sequence[FastColumn], settings: Mapping[str, Any]) -> str:
    """Spark SQL for the plan of a message: from its own schema where it has one."""
    names = f"array({', '.join(literal(c.name) for c in columns)})"
    targets = f"array({', '.join(literal(c.column.name) for c in columns)})"
    fields = f"array({', '.join(_field(c.text.plan) for c in columns)})"
    given = _plan(names, targets, fields)
    opening = parts("value").schema
    if settings["unwrapped"]:
        read = f"from_json(concat({opening}, '}}}}'), {literal(_FLAT)}).schema.fields"
    else:
        all_fields = f"from_json(concat({opening}, '}}}}'), {literal(_SCHEMA)}).schema.fields"
        read = f"get(filter({all_fields}, s -> s.field in ('before', 'after')), 0).fields"
    at = f"cast(array_position({names}, f.field) as int) - 1"
    target = f"coalesce(get({targets}, {at}), f.field)"
    own = _plan("r.field", f"transform(r, f -> {target})", f"transform(r, f -> {_own_field(columns, at, settings)})")
    told = f"element_at(transform(array({read}), r -> {own}), 1)"
    return f"if({opening} is null, {given}, coalesce({told}, {given}))"


def _plan(names: str, columns: str, fields: str) -> str:
    parts_ = ", ".join(f"'{prefix}{name}', {sql}" for prefix in ("", "key_") for name, sql in
                       (("names", names), ("columns", columns), ("fields", fields)))  # fmt: skip
    return f"cast(named_struct({parts_}, 'changes', null) as {PLAN_DDL})"


def _field(plan: Mapping[str, Any]) -> str:
    values = ", ".join(f"'{name}', {str(value).lower()}" for name, value in plan.items())
    return f"cast(named_struct({values}) as {texts.FIELD_DDL})"


def _own_field(columns: Sequence[FastColumn], at: str, settings: Mapping[str, Any]) -> str:
    """SQL of the plan of a field `f` of a message's schema."""
    codes = _map({name: form.code for name, form in NAMED_FORMS.items()})
    units = _map({name: form.unit for name, form in NAMED_FORMS.items()})
    plain = _map({name: field_text({"type": name}).code for name in PLAIN_FORMS})
    digits = f"array({', '.join(str(c.text.digits) for c in columns)})"
    # A text that is bytes by the structure: how they are written is an option.
    bytes_ = {"hex": texts.HEX, "base64-url-safe": texts.URL_SAFE}.get(settings["binary_handling_mode"], texts.AS_IS)
    of_text = f"array({', '.join(str(bytes_ if c.column.logical.kind == 'bytes' else 0) for c in columns)})"
    listed = f"f.type = 'array' and map_contains_key({codes}, f.items.name)"
    name = f"if({listed}, f.items.name, f.name)"
    code = f"coalesce({codes}[{name}], if(f.type = 'string', get({of_text}, {at}), {plain}[f.type]), {texts.AS_IS})"
    scale = f"coalesce(try_cast(if({listed}, f.items.parameters['scale'], f.parameters['scale']) as int), 0)"
    return (
        f"cast(named_struct('code', {code}, 'unit', coalesce({units}[{name}], 6), 'digits', "
        f"coalesce(get({digits}, {at}), -1), 'scale', {scale}, 'listed', coalesce({listed}, false)) "
        f"as {texts.FIELD_DDL})"
    )


def _map(values: Mapping[str, int]) -> str:
    return f"map({', '.join(f'{literal(name)}, {value}' for name, value in values.items())})"
