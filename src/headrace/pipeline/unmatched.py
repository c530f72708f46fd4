"""Names and patterns of transforms, routes, sinks and formats that stand for no captured table or column.

A database says all its tables before the first row. A feed says a table when its first message comes, so of a feed it
is never certain that a name stands for nothing. But a column that no table has, where one has almost that name, is
misspelt: that stops a new pipeline before its first row.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence

from headrace.changes import TableId, TableSchema
from headrace.changes.table_pattern import EVERY_TABLE, TablePattern, matching
from headrace.errors import HeadraceError
from headrace.options import Names, bare, is_optional
from headrace.pipeline.kafka_source import KafkaTopicsSettings
from headrace.pipeline.shaping.transforms import Transform
from headrace.pipeline.target import Target
from headrace.registry import did_you_mean
from headrace.sources.tables.unmatched import Unmatched, require_matched

_LOG = logging.getLogger("headrace.pipeline")
_MISSPELT = 0.8
"""From which likeness on (difflib's ratio) two names are taken for one and its misspelling."""
_TABLES = Names("tables", "chooses")


def unmatched_in(
    targets: Iterable[Target], tables: Sequence[TableSchema], gone: Sequence[TableId] = ()
) -> list[Unmatched]:
    """What stands for nothing, each once. Runs in the driver; makes no request.

    Args:
        targets: the sinks with what stands before them.
        tables: what is captured.
        gone: tables that are captured no longer; what is for one of them only is left alone.
    """
    unmatched: dict[Unmatched, None] = {}
    for target in targets:
        computed: list[str] = []
        for transform in target.shaping.transforms:
            computed += [name for name, _ in transform.computed]
            unmatched |= dict.fromkeys(_of_transform(transform, tables, gone, computed))
        for number, route in enumerate(target.shaping.routes.routes, 1):
            owner = f" of route {number} of {target.label}"
            unmatched |= dict.fromkeys(_of_tables(route.tables, tables, gone, owner))
        unmatched |= dict.fromkeys(_of_sink(target, tables, gone))
        unmatched |= dict.fromkeys(_of_format(target, tables))
    return list(unmatched)


class FeedPatterns:
    """Names and patterns, held against the tables of the first batch of a run that says some. Runs in the driver.

    Args:
        targets: the sinks with what stands before them.
        settings: the source's options, which say whether a misspelt name stops the run.
        fresh: whether nothing was read before; else other tables may have come, and what is found is only logged.
    """

    def __init__(self, targets: Sequence[Target], settings: KafkaTopicsSettings, *, fresh: bool) -> None:
        self._targets = targets
        self._settings = settings
        self._fresh = fresh
        self.due = True
        """Whether they are still to be held against something."""

    def hold(self, tables: Sequence[TableSchema]) -> None:
        """Hold them against the tables of a batch, before its first row goes on.

        Raises:
            OptionError: a column is misspelt that protects or chooses data.
        """
        if not tables or not self.due:
            return
        unmatched = unmatched_in(self._targets, tables)
        there = {column.name.lower() for schema in tables for column in schema.columns}
        misspelt = [
            one
            for one in unmatched
            if one.names.what != "tables" and difflib.get_close_matches(bare(one.text).lower(), there, 1, _MISSPELT)
        ]
        if self._fresh:
            require_matched(self._settings, misspelt)
        # A run that goes on has seen other tables before, so only a likely mistake is worth a word.
        for one in [one for one in unmatched if one not in misspelt] if self._fresh else misspelt:
            _LOG.warning("%s", one.sentence)
        self.due = False


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


def names_columns(target: Target) -> bool:
    settings = target.sink.settings
    return any(
        option.names is not None and option.names.what == "columns" and settings.get(option.name)
        for option in settings.declared
    )


def _of_sink(target: Target, tables: Sequence[TableSchema], gone: Sequence[TableId]) -> Iterator[Unmatched]:
    if gone or not names_columns(target):
        return
    settings = target.sink.settings
    named = [option for option in settings.declared if option.names is not None and option.names.what == "columns"]
    there: set[str] = set()
    for schema in tables:
        try:
            shaped = target.shaping.structure(schema, None)
        except HeadraceError:
            # It is reported where the table is looked at.
            return
        for name in (column.name for column in shaped.columns) if shaped is not None else ():
            assert shaped is not None
            there |= {name, f"{shaped.id.name}.{name}", f"{shaped.id.path}.{name}"}
    there |= {name for transform in target.shaping.transforms for name, _ in transform.computed}
    for option in named:
        assert option.names is not None
        for text in settings.get(option.name) or ():
            if not is_optional(text) and option.names.name_in(text) not in there:
                yield Unmatched(option.name, text, option.names, _near(text, sorted(there)), f" of {target.label}")


def _of_format(target: Target, tables: Sequence[TableSchema]) -> Iterator[Unmatched]:
    if target.format is None:
        return
    columns = [
        f"{path}.{column.name}"
        for schema in tables
        for path in (schema.id.path, schema.id.full_path)
        for column in schema.columns
    ]
    for option in target.format.options:
        if option.names is None or option.names.what != "columns":
            continue
        patterns: Sequence[re.Pattern[str]] = target.format.settings.get(option.name) or ()
        for pattern in patterns:
            if not any(map(pattern.fullmatch, columns)):
                yield Unmatched(option.name, pattern.pattern, option.names, "", f" of {target.label}")


def _near(text: str, known: Sequence[str]) -> str:
    suggestion = did_you_mean(bare(text), known)
    return suggestion if suggestion.startswith("Did") else ""
