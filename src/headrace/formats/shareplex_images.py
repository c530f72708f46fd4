"""The images of SharePlex messages, as maps of texts or as structs of one table's columns.

Both give the same columns beside those they are given: `old_image` (the row before, or a deleted row), `new_image`,
`old_absent` and `new_absent`, `changed`, `facts` (`data` as a map, of structure changes) and `misfit` (why a text does
not fit the structure).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal, quote
from headrace.formats import exact_json, text_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ADDED = ("old_image", "new_image", "old_absent", "new_absent", "changed", "facts", "misfit")
# Kinds of messages whose `data` lies over `key`, and those that give the row before.
_UPDATES = "kind in ('u', 'new')"
_OLD = "kind in ('d', 'old')"
_STRUCTURAL = "kind in ('drop', 'ddl')"
# Cannot stand inside a JSON string, where quotes are escaped, so it divides `data` from `key`.
_DIVIDER = '},"key":{'
_NOTHING = "cast(null as array<string>)"


@dataclass(frozen=True)
class MapImages:
    """Images as maps of texts, for any table.

    Args:
        known: structures by which the texts are spelled canonically; texts of other tables stay as they came.
        keys: the key columns, where the caller says them.
        binary: how bytes are written, `hex` or `base64`.
    """

    known: tuple[TableSchema, ...] = ()
    keys: tuple[str, ...] = ()
    binary: str = "hex"

    parsed = "map<string,string>"

    def unmarked(self, image: str) -> str:
        """Spark SQL for a parsed image without the marks of exact numbers, in which each name stands once."""
        # The last one counts, as for JSON parsers at large.
        twice = f"size(array_distinct(map_keys({image}))) < size({image})"
        last = (
            f"map_from_entries(filter(map_entries({image}), (e, i) -> "
            f"array_position(reverse(map_keys({image})), e.key) = size({image}) - i))"
        )
        return exact_json.unmarked_map(f"if({twice}, {last}, {image})")

    def laid(self, read: DataFrame) -> DataFrame:
        """The messages with their images; `d` and `k` hold what `data` and `key` say."""
        overlaid = (
            "map_concat(transform_values(k, (c, v) -> if(map_contains_key(d, c), d[c], v)), "
            "map_filter(d, (c, v) -> not map_contains_key(k, c)))"
        )
        kept = [name for name in read.columns if name not in ("d", "k")]
        # An empty object says as little as none.
        filled = read.selectExpr(*kept, *(f"if(size({i}) = 0, null, {i}) as {i}" for i in ("d", "k")))
        old = f"case when {_UPDATES} then k when {_OLD} then coalesce(d, k) end"
        new = (
            f"case when kind = 'c' or ({_UPDATES} and k is null) then d "
            f"when {_UPDATES} then if(d is null, k, {overlaid}) end"
        )
        return filled.selectExpr(
            *kept,
            f"{text_values.canonical_map(old, self.known, 't', self.binary)} as old_image",
            f"{text_values.canonical_map(new, self.known, 't', self.binary)} as new_image",
            f"{_NOTHING} as old_absent",
            f"{_NOTHING} as new_absent",
            f"if({_UPDATES} and k is not null, map_keys(d), null) as changed",
            f"if({_STRUCTURAL}, d, null) as facts",
            "cast(null as string) as misfit",
        )

    def key(self, image: str) -> str:
        """Spark SQL for the key's columns out of an image: those that the caller says, else that Kafka's key names."""
        said = [
            f"when {text_values.is_table(schema, 't')} then {_names(schema.key)}" for schema in self.known if schema.key
        ]
        if self.keys:
            names = _names(self.keys)
        else:
            text = "cast(key as string)"
            kafka = f"if(startswith({text}, '{{'), map_keys(from_json({text}, 'map<string,string>')), null)"
            names = f"case {' '.join(said)} else {kafka} end" if said else kafka
        return (
            f"if({image} is null, null, element_at(transform(array({names}), names -> if(size(names) > 0 and "
            f"size(array_distinct(names)) = size(names) and forall(names, n -> map_contains_key({image}, n)), "
            f"map_from_arrays(names, transform(names, n -> {image}[n])), null)), 1))"
        )


@dataclass(frozen=True)
class StructImages:
    """Images as structs of one table's columns, read from texts.

    A null column of a parsed struct may stand in the message or not. That is told by looking for its name in the text;
    where this does not decide (blanks between name and null, a set NULL), the names are parsed, for that message only.

    Args:
        schema: the structure, whose key is the rows' key.
        binary: how bytes are written, `hex` or `base64`.
    """

    schema: TableSchema
    binary: str = "hex"

    @property
    def parsed(self) -> str:
        """The Spark type that `data` and `key` are parsed as."""
        return f"struct<{', '.join(f'{quote(name)}: string' for name in self._columns)}>"

    @property
    def _columns(self) -> list[str]:
        return [column.name for column in self.schema.columns]

    def unmarked(self, image: str) -> str:
        """Spark SQL for a parsed image without the marks of exact numbers."""
        fields = (f"{literal(n)}, {exact_json.unmarked(f'{image}.{quote(n)}')}" for n in self._columns)
        return f"if(mark is null or {image} is null, {image}, named_struct({', '.join(fields)}))"

    def laid(self, read: DataFrame) -> DataFrame:
        """The messages with their images; `d` and `k` hold what `data` and `key` say."""
        kept = [name for name in read.columns if name not in ("d", "k")]
        named = self._with_names(read)
        typed = named.selectExpr(
            *fenced(kept),
            "names",
            # An empty object says as little as none.
            "d is not null and (names is null or size(names.data) > 0) as has_d",
            "k is not null and (names is null or size(names.`key`) > 0) as has_k",
            "d",
            "k",
            f"{text_values.typed_struct('d', self.schema, self.binary)} as dt",
            f"{text_values.typed_struct('k', self.schema, self.binary)} as kt",
        )
        all_names = _names(self._columns)
        overlaid = ", ".join(
            f"{literal(n)}, if(d.{quote(n)} is not null or array_contains(names.data, {literal(n)}), dt.{quote(n)}, "
            f"kt.{quote(n)})"
            for n in self._columns
        )
        given = ", ".join(f"if(d.{quote(n)} is not null, {literal(n)}, null)" for n in self._columns)
        changed = f"if(names is null, array_compact(array({given})), array_intersect(names.data, {all_names}))"
        both = "array_union(names.data, names.`key`)"
        misfits = [text_values.misfit_sentence(t, v, self.schema) for t, v in (("d", "dt"), ("k", "kt"))]

        def absent(names: str) -> str:
            missing = f"array_except({all_names}, {names})"
            return f"if(names is null or size({missing}) = 0, null, {missing})"

        return typed.selectExpr(
            *fenced(kept),
            f"case when {_UPDATES} and has_k then kt when {_OLD} and has_d then dt when {_OLD} and has_k then kt end "
            "as old_image",
            f"case when (kind = 'c' or {_UPDATES} and not has_k) and has_d then dt when {_UPDATES} and has_k then "
            f"if(has_d, named_struct({overlaid}), kt) end as new_image",
            f"case when {_UPDATES} then {absent('names.`key`')} when {_OLD} then "
            f"if(has_d, {absent('names.data')}, {absent('names.`key`')}) end as old_absent",
            f"case when kind = 'c' or {_UPDATES} and not has_k then {absent('names.data')} when {_UPDATES} then "
            f"{absent(f'if(has_d, {both}, names.`key`)')} end as new_absent",
            f"if({_UPDATES} and has_d and has_k, {changed}, null) as changed",
            f"if({_STRUCTURAL}, from_json(text, 'data map<string,string>').data, null) as facts",
            f"coalesce({', '.join(misfits)}) as misfit",
        )

    def _with_names(self, read: DataFrame) -> DataFrame:
        """The messages with the names in `data` and `key`, where a look at the text does not say what is absent."""
        one = f"octet_length(head) + octet_length(tail) + {len(_DIVIDER)} = octet_length(text)"
        divided = read.selectExpr(
            "*",
            f"{_UPDATES} and k is not null as overlaid",
            f"if({_UPDATES} and k is not null, substring_index(text, {literal(_DIVIDER)}, 1), null) as head",
            f"if({_UPDATES} and k is not null, substring_index(text, {literal(_DIVIDER)}, -1), text) as tail",
            f"if({_UPDATES} and k is not null, k, coalesce(d, k)) as looked_at",
        )
        # A set NULL in `data` of an update is rare enough to be looked up.
        data_decided = f"(not overlaid or (instr(head, 'null') = 0 and {one}))"
        # A column named like a part of `meta` may be found there.
        from_meta = {"time", "userid", "op", "scn", "rowid", "trans", "seq", "size", "table", "idx", "posttime"}
        words = " and ".join(
            f"(looked_at.{quote(n)} is not null"
            + ("" if n in from_meta else f" or contains(tail, {literal(_null_word(n))})")
            + ")"
            for n in self._columns
        )
        parse = "from_json(text, 'data map<string,string>, `key` map<string,string>')"
        names = f"transform(array({parse}), p -> named_struct('data', map_keys(p.data), 'key', map_keys(p.`key`)))[0]"
        decided = f"unread or looked_at is null or ({data_decided} and {words})"
        return divided.selectExpr(*read.columns, f"if({decided}, null, {names}) as names")

    def key(self, image: str) -> str:
        """Spark SQL for the key's columns out of an image; null where it has none of them."""
        columns = self.schema.key_columns
        if not columns:
            return "null"
        pairs = ", ".join(f"{literal(c.name)}, {canonical_text(f'{image}.{quote(c.name)}', c)}" for c in columns)
        some = ", ".join(f"{image}.{quote(c.name)} is not null" for c in columns).replace(", ", " or ")
        return f"if({some}, map({pairs}), null)"


def _null_word(name: str) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}:null"


def _names(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"


def fenced(columns: Sequence[str]) -> list[str]:
    """The columns, `kind` by way of a lambda: Spark keeps such a projection out of whole-stage code, where expressions
    for many columns make one method that is too long to be compiled."""
    return [f"transform(array({c}), c -> c)[0] as {c}" if c == "kind" else c for c in columns]
