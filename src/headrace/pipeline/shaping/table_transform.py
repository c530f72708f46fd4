"""What a list of transforms makes of one table: its new structure, and Spark SQL that makes the new images.

A row's image is a map of texts. What users write speaks of typed columns by their bare names, so an image is opened as
`select ... from (select <typed column> as name, ...)`, one level for each step; Spark folds the levels into one
expression, and no row goes through a join or through Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.changes import Column, LogicalType, TableSchema
from headrace.changes.texts import canonical_text
from headrace.changes.typed import Misfit, in_order, literal, quote, typed_value
from headrace.errors import OptionError
from headrace.options import bare, is_optional
from headrace.pipeline.shaping.expressions import Expression, read_expression, unknown_column
from headrace.pipeline.shaping.transforms import ColumnMask, Transform
from headrace.registry import did_you_mean
from headrace.sources.tables.masks import CHARACTERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SALTS = "__headrace_salts"
"""The column with the salts of a table's hashes, so that none stands in a query's plan."""
_KEPT = "__headrace_kept"

Read = dict[tuple[str, tuple[tuple[str, str], ...]], Expression]
"""Expressions that were read, by their text and the columns that they may name."""


@dataclass(frozen=True)
class _State:
    """A column as it is after some steps.

    Args:
        column: how it is declared.
        origins: the source's columns that its value is made of; one for a column that came as it is.
        computed: whether it was made by an expression.
        masks: what was done to its text since, as (mask, length, place of the salt).
    """

    column: Column
    origins: tuple[str, ...]
    computed: bool = False
    masks: tuple[tuple[ColumnMask, int | None, int], ...] = ()


@dataclass(frozen=True)
class Made:
    """A computed column of the new images.

    Args:
        name: its name.
        origins: the source's columns that it is made of.
    """

    name: str
    origins: tuple[str, ...]


@dataclass(frozen=True)
class TableTransform:
    """What transforms do to one table's rows and schema. Pure: it holds texts of SQL and no session.

    Args:
        source: the structure that the rows follow.
        schema: the structure that they get, under the source's name.
        needed: the source's columns that a filter reads; None without a filter.
        made: the computed columns that are in the new images.
        salts: of the hashes, in order; secrets.
    """

    source: TableSchema
    schema: TableSchema
    needed: tuple[str, ...] | None
    made: tuple[Made, ...]
    salts: tuple[str, ...] = field(repr=False)
    _levels: tuple[tuple[tuple[str, str], ...], ...] = field(repr=False)
    _opened: tuple[str, ...] = field(repr=False)
    _filters: tuple[str, ...] = field(repr=False)
    _masked: tuple[tuple[str, str], ...] = field(repr=False)
    _kept: tuple[str, ...] = field(repr=False)

    @property
    def opens(self) -> bool:
        """Whether images must be opened: there are expressions over their columns."""
        return self.needed is not None or bool(self.made)

    def opened(self, image: str, other: str) -> str:
        """Spark SQL for `struct<kept: boolean, made: array<string>>` of an image.

        Args:
            image: SQL for a map of texts.
            other: SQL for the row's other image, which says the values that the first does not carry.
        """
        columns = {column.name: column for column in self.source.columns}
        misfit = Misfit(str(self.source.id), remedy="Leave the column out of the expressions of transforms.")
        texts = {
            name: f"if(map_contains_key({image}, {literal(name)}), {image}[{literal(name)}], {other}[{literal(name)}])"
            for name in self._opened
        }
        values = {name: typed_value(_day(texts[name], columns[name]), columns[name], misfit) for name in self._opened}
        inner = ", ".join(f"{value} as {quote(name)}" for name, value in values.items())
        relation = f"(select {inner or 'null as ' + quote(_KEPT)})"
        for level in self._levels:
            relation = f"(select {', '.join(f'{sql} as {quote(name)}' for name, sql in level)} from {relation})"
        kept = " and ".join(self._filters) or "true"
        by_name = {column.name: column for column in self.schema.columns}
        computed = ", ".join(canonical_text(quote(one.name), by_name[one.name]) for one in self.made)
        texts_made = f"array({computed})" if computed else "cast(array() as array<string>)"
        return f"(select named_struct('kept', {kept}, 'made', {texts_made}) from {relation})"

    def image(self, image: str, computed: str, present: Sequence[str]) -> str:
        """Spark SQL for the new image.

        Args:
            image: SQL for the old one; not null.
            computed: SQL for the texts of the computed columns.
            present: for each computed column SQL that says whether the image carries it.
        """
        new = image
        if set(self._kept) != {column.name for column in self.source.columns}:
            new = f"map_filter({new}, (k, v) -> k in ({_literals(self._kept) or 'null'}))"
        if self._masked:
            cases = " ".join(f"when {literal(name)} then {sql}" for name, sql in self._masked)
            new = f"transform_values({new}, (k, v) -> case k {cases} else v end)"
        if not self.made:
            return new
        entries = ", ".join(
            f"if({there}, named_struct('key', {literal(one.name)}, 'value', {computed}[{index}]), null)"
            for index, (one, there) in enumerate(zip(self.made, present, strict=True))
        )
        new = f"map_concat({new}, map_from_entries(array_compact(array({entries}))))"
        order = [column.name for column in self.schema.columns]
        if [*self._kept, *(one.name for one in self.made)] == order:
            return new
        # A column that was replaced stands in its old place.
        return in_order(new, order)

    def changed(self, changed: str) -> str:
        """Spark SQL for the names of changed columns."""
        parts = [f"filter({changed}, c -> c in ({_literals(self._kept) or 'null'}))"]
        parts += [
            f"if(arrays_overlap({changed}, array({_literals(one.origins)})), array({literal(one.name)}), "
            "cast(array() as array<string>))"
            for one in self.made
            if one.origins
        ]
        return f"concat({', '.join(parts)})"


def transform_table(
    transforms: Iterable[Transform], schema: TableSchema, spark: SparkSession | None, known: Read
) -> TableTransform | None:
    """What transforms make of a table; None where none is for it. Runs in the driver; runs no job.

    Args:
        transforms: in order.
        schema: the table's structure.
        spark: a classic session, which reads expressions; only transforms without any can do without it.
        known: expressions that were read already; those that are read now are put there.

    Raises:
        OptionError: a transform names a column that is not there, leaves out, replaces or masks one of the key, masks
            one without characters, or has an expression that can't be used.
    """
    mine = [transform for transform in transforms if transform.matches(schema.id)]
    if not mine:
        return None
    work = _Work(schema, spark, known)
    for transform in mine:
        work.take(transform)
    return work.done()


def require_columns(transforms: Iterable[Transform], schema: TableSchema) -> None:
    """Hold the names in expressions against a table's columns, where there is no Spark to read them.

    Raises:
        OptionError: one is not there.
    """
    names = [column.name for column in schema.columns]
    for transform in transforms:
        if not transform.matches(schema.id):
            continue
        written = [("The filter", transform.filter)] if transform.filter else []
        for what, text in [*written, *((f"Column '{name}'", text) for name, text in transform.computed)]:
            missing = unknown_column(text, names)
            if missing is not None:
                raise OptionError(
                    f"{what} of {transform.label} names column '{missing}', which table '{schema.id.path}' does not "
                    "have.",
                    remedy=did_you_mean(missing, names),
                )
        computed = [name for name, _ in transform.computed]
        names = list(dict.fromkeys([*names, *computed]))
        if transform.include:
            names = [name for name in names if name in (*map(bare, transform.include), *computed)]
        names = [name for name in names if name not in map(bare, transform.exclude)]


class _Work:
    """Steps one after the other, each over the columns that the one before it left."""

    def __init__(self, schema: TableSchema, spark: SparkSession | None, known: Read) -> None:
        self._known = known
        self._schema = schema
        self._spark = spark
        self._state = {column.name: _State(column, (column.name,)) for column in schema.columns}
        self._levels: list[dict[str, str]] = []
        self._used: set[str] = set()
        self._filters: list[str] = []
        self._needed: set[str] | None = None
        self._salts: list[str] = []

    def take(self, transform: Transform) -> None:
        if transform.filter is not None:
            self._filter(transform, transform.filter)
        if transform.computed:
            self._compute(transform)
        for mask in transform.masks:
            self._mask(transform, mask)
        if transform.include or transform.exclude:
            self._choose(transform)

    def done(self) -> TableTransform:
        states = self._state.values()
        columns = tuple(replace(state.column, position=n) for n, state in enumerate(states, 1))
        plain = [state for state in states if not state.computed]
        primary, names = self._schema.primary_key, {column.name for column in columns}
        left = None if primary is None else tuple(name for name in primary if name in names)
        return TableTransform(
            source=self._schema,
            schema=replace(self._schema, columns=columns, primary_key=left),
            needed=None if self._needed is None else self._in_order(self._needed),
            made=tuple(Made(state.column.name, state.origins) for state in states if state.computed),
            salts=tuple(self._salts),
            _levels=self._pruned(),
            _opened=self._in_order(self._used),
            _filters=tuple(quote(name) for name in self._filters),
            _masked=tuple((state.column.name, _masked("v", state.masks)) for state in plain if state.masks),
            _kept=tuple(state.column.name for state in plain),
        )

    def _pruned(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """Each level with what it makes, and what it passes on of what the levels after it may ask for."""
        pruned, below = [], dict.fromkeys(self._in_order(self._used))
        for level in self._levels:
            line = {name: quote(name) for name in below} | level
            pruned.append(tuple(line.items()))
            below = dict.fromkeys(line)
        return tuple(pruned)

    def _in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        wanted = set(names)
        return tuple(column.name for column in self._schema.columns if column.name in wanted)

    def _read(self, transform: Transform, text: str, what: str) -> tuple[Expression, tuple[str, ...]]:
        """An expression over the columns as they are now, and the source's columns that it is made of."""
        assert self._spark is not None
        owner = f"{what} of {transform.label} for table '{self._schema.id.path}'"
        columns = [state.column for state in self._state.values()]
        # Tables that are alike are many where there are many, and Spark takes a twentieth of a second for each.
        asked = (text, tuple((column.name, column.logical.spark_type) for column in columns))
        if asked not in self._known:
            self._known[asked] = read_expression(self._spark, text, columns, owner)
        known = self._known[asked]
        origins = self._in_order(name for column in known.columns for name in self._state[column].origins)
        self._used.update(origins)
        return known, origins

    def _filter(self, transform: Transform, text: str) -> None:
        expression, origins = self._read(transform, text, "The filter")
        if expression.logical.kind != "boolean":
            raise OptionError(
                f"The filter of {transform.label} for table '{self._schema.id.path}' is {expression.logical} and no "
                "condition.",
                remedy="Write a comparison.",
            )
        self._needed = (self._needed or set()) | set(origins)
        name = f"{_KEPT}_{len(self._filters)}"
        self._filters.append(name)
        self._levels.append({name: f"coalesce({expression.sql}, false)"})

    def _compute(self, transform: Transform) -> None:
        level, states = {}, {}
        for name, text in transform.computed:
            if name in self._schema.key:
                raise OptionError(
                    f"{transform.label.capitalize()} computes column '{name}' of table '{self._schema.id.path}', which "
                    "is in the table's key.",
                    remedy="Give the computed column another name.",
                )
            alike = next((n for n in self._state if n.casefold() == name.casefold() and n != name), None)
            if alike is not None:
                raise OptionError(
                    f"{transform.label.capitalize()} computes column '{name}' of table '{self._schema.id.path}', which "
                    f"has '{alike}'.",
                    remedy="Spell it the same to replace that column, or give it another name.",
                )
            expression, origins = self._read(transform, text, f"Column '{name}'")
            index = self._state[name].column.position if name in self._state else len(self._state) + 1
            column = Column(name, index, expression.logical)
            level[name] = expression.sql
            states[name] = _State(column, origins, computed=True)
        self._levels.append(level)
        self._state.update(states)

    def _mask(self, transform: Transform, mask: ColumnMask) -> None:
        level = {}
        for name in self._there(transform, mask.columns, f"Option '{mask.option}'"):
            state = self._state[name]
            path = self._schema.id.path
            if name in self._schema.key:
                raise OptionError(
                    f"Option '{mask.option}' of {transform.label} names column '{name}' of table '{path}', which is in "
                    "the table's key.",
                    remedy="Leave the column out of the option.",
                )
            if state.column.logical.kind not in CHARACTERS:
                raise OptionError(
                    f"Option '{mask.option}' of {transform.label} names column '{name}' of table '{path}', whose type "
                    f"{state.column.logical} has no characters.",
                    remedy="Name character columns only; 'exclude_columns' keeps any column back.",
                )
            index = len(self._salts)
            if mask.mask.kind == "hash":
                self._salts.append(mask.mask.salt)
            done = (mask, state.column.length, index)
            # A default would tell what the mask hides.
            plain = replace(
                state.column, logical=LogicalType("string"), default=None, default_expression=None, generated=False
            )
            column = mask.mask.described(plain, state.column.length)
            self._state[name] = replace(state, column=column, masks=(*state.masks, done))
            level[name] = _masked(quote(name), (done,))
        if level:
            self._used.update(origin for name in level for origin in self._state[name].origins)
            self._levels.append(level)

    def _choose(self, transform: Transform) -> None:
        listed = transform.include or transform.exclude
        option = "include_columns" if transform.include else "exclude_columns"
        named = set(self._there(transform, listed, f"Option '{option}'"))
        computed = {name for name, _ in transform.computed}
        left = {name for name in self._state if (name in named) == bool(transform.exclude)}
        if transform.include:
            left -= computed
        lost = next((name for name in self._schema.key if name in left), None)
        if lost is not None:
            raise OptionError(
                f"{transform.label.capitalize()} leaves out column '{lost}' of table '{self._schema.id.path}', which "
                "is in the table's key.",
                remedy="Add it to 'include_columns'." if transform.include else "Take it out of 'exclude_columns'.",
            )
        for name in left:
            del self._state[name]

    def _there(self, transform: Transform, names: Sequence[str], owner: str) -> list[str]:
        """Those of the names that the table has; where the transform names the table, it must have them all."""
        missing = next((name for name in names if name not in self._state and not is_optional(name)), None)
        if missing is not None and transform.names(self._schema.id):
            raise OptionError(
                f"{owner} of {transform.label} names column '{missing}', which table '{self._schema.id.path}' does not "
                "have.",
                remedy=did_you_mean(missing, list(self._state)),
            )
        return [bare(name) for name in names if bare(name) in self._state]


def _masked(text: str, masks: Sequence[tuple[ColumnMask, int | None, int]]) -> str:
    for mask, length, index in masks:
        text = mask.sql(text, f"{SALTS}[{index}]", length)
    return text


def _day(text: str, column: Column) -> str:
    """A text, or null for a day that MySQL has and no calendar (`0000-00-00`, `2024-00-10`)."""
    if column.logical.kind not in ("date", "timestamp", "instant"):
        return text
    # Behind the first character, which may be the sign of a year.
    return f"if(contains(substr({text}, 2, 9), '-00'), null, {text})"


def _literals(names: Iterable[str]) -> str:
    return ", ".join(literal(name) for name in names)
