"""Names and patterns of transforms, routes, sinks and formats that stand for no captured table or column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from headrace.changes import TableId, TableSchema
from headrace.changes.table_pattern import EVERY_TABLE, TablePattern, matching
from headrace.errors import HeadraceError
from headrace.options import Names, bare, is_optional
from headrace.pipeline.model import Target
from headrace.pipeline.transforms import Transform
from headrace.registry import did_you_mean
from headrace.sources.unmatched import Unmatched

_TABLES = Names("tables", "chooses")
_INFORMS = Names("columns", "informs")


def unmatched_in(
    targets: Iterable[Target], tables: Sequence[TableSchema], gone: Sequence[TableId] = ()
) -> list[Unmatched]:
    """What stands for nothing, each once. Runs in the driver; asks nobody.

    Args:
        targets: the sinks with what stands before them.
        tables: what is captured.
        gone: tables that are captured no longer; what is for one of them only is left alone.
    """
    found: dict[Unmatched, None] = {}
    for target in targets:
        computed: list[str] = []
        for transform in target.shaping.transforms:
            computed += [name for name, _ in transform.computed]
            found |= dict.fromkeys(_of_transform(transform, tables, gone, computed))
        for number, route in enumerate(target.shaping.routes.routes, 1):
            owner = f" of route {number} of {target.label}"
            found |= dict.fromkeys(_of_tables(route.tables, tables, gone, owner))
        found |= dict.fromkeys(_of_sink(target, tables, gone))
        found |= dict.fromkeys(_of_format(target, tables))
    return list(found)


def _of_transform(
    transform: Transform, tables: Sequence[TableSchema], gone: Sequence[TableId], computed: Sequence[str]
) -> Iterator[Unmatched]:
    yield from _of_tables(transform.tables, tables, gone, f" of {transform.label}")
    mine = [schema for schema in tables if transform.matches(schema.id)]
    if not mine or any(transform.matches(id) for id in gone):
        # Said already, or not known.
        return
    there = {column.name for schema in mine for column in schema.columns} | set(computed)
    for option, names, listed in transform.named_columns:
        for text in listed:
            if not is_optional(text) and text not in there:
                yield Unmatched(option, text, names, _near(text, sorted(there)), f" of {transform.label}")


def _of_tables(
    patterns: Sequence[TablePattern], tables: Sequence[TableSchema], gone: Sequence[TableId], owner: str
) -> Iterator[Unmatched]:
    if patterns == EVERY_TABLE:
        return
    for pattern in patterns:
        if pattern.is_optional or any(matching((pattern,), id) for id in (*(s.id for s in tables), *gone)):
            continue
        yield Unmatched("tables", pattern.text, _TABLES, _near(pattern.text, [s.id.path for s in tables]), owner)


def _of_sink(target: Target, tables: Sequence[TableSchema], gone: Sequence[TableId]) -> Iterator[Unmatched]:
    settings = target.sink.settings
    named = [option for option in settings.declared if option.names is not None and option.names.what == "columns"]
    if gone or not any(settings[option.name] for option in named):
        return
    there: set[str] = set()
    for schema in tables:
        try:
            shaped = target.shaping.structure(schema, None)
        except HeadraceError:
            # It is told where the table is looked at.
            return
        for name in (column.name for column in shaped.columns) if shaped is not None else ():
            assert shaped is not None
            there |= {name, f"{shaped.id.name}.{name}", f"{shaped.id.path}.{name}"}
    there |= {name for transform in target.shaping.transforms for name, _ in transform.computed}
    for option in named:
        assert option.names is not None
        for text in settings[option.name] or ():
            if not is_optional(text) and text not in there:
                yield Unmatched(option.name, text, option.names, _near(text, sorted(there)), f" of {target.label}")


def _of_format(target: Target, tables: Sequence[TableSchema]) -> Iterator[Unmatched]:
    name = "column_propagate_source_type"
    patterns: Sequence[re.Pattern[str]] = () if target.format is None else target.format.settings.get(name) or ()
    full = [
        f"{path}.{c.name}"
        for schema in tables
        for path in (schema.id.path, schema.id.full_path)
        for c in schema.columns
    ]
    for pattern in patterns:
        if not any(pattern.fullmatch(column) for column in full):
            yield Unmatched(name, pattern.pattern, _INFORMS, "", f" of {target.label}")


def _near(text: str, known: Sequence[str]) -> str:
    said = did_you_mean(bare(text), known)
    return said if said.startswith("Did") else ""
