"""The images of SharePlex messages, as maps of texts or as structs of one table's columns.

Both give the same columns beside those they are given: `old_image` (the row before, or a deleted row), `new_image`,
`old_absent` and `new_absent`, `changed`, `row_key`, `facts` (`data` as a map, of structure changes) and `misfit` (why a
text does not fit the structure).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal, quote
from headrace.formats import exact_json, text_values
from headrace.formats.messages import KAFKA_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

META = ("time", "userid", "op", "scn", "rowid", "trans", "seq", "size", "table", "idx", "posttime")
# Kinds of messages whose `data` lies over `key`, and those that give the row before.
_UPDATES = "kind in ('u', 'new')"
_OLD = "kind in ('d', 'old')"
_STRUCTURAL = "kind in ('drop', 'ddl')"
# Cannot stand inside a JSON string, where quotes are escaped, so it divides `data` from `key`.
_DIVIDER = '},"key":{'
# One divider only, so that what stands behind it is surely the key.
_ONE = f"coalesce(octet_length(head) + octet_length(tail) + {len(_DIVIDER)} = octet_length(text), false)"
_NOTHING = "cast(null as array<string>)"
_NEWEST = "if(kind = 'd', old_image, new_image)"
_KEY = (
    f"if(size(key_names) > 0 and size(array_distinct(key_names)) = size(key_names) and "
    f"forall(key_names, n -> map_contains_key({_NEWEST}, n)), "
    f"map_from_arrays(key_names, transform(key_names, n -> {_NEWEST}[n])), null)"
)


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

    def read(self, texts: DataFrame, meta: str, said: Sequence[str]) -> DataFrame:
        """Kafka's columns with `unread`, `behind`, `meta`, `d` and `k` (what `data` and `key` say), and `said`.

        Args:
            texts: Kafka's columns and `text`.
            meta: the Spark type of `meta`.
            said: SQL over the parsed message `p`.
        """
        mark, marked = exact_json.exact("text")
        image = "map<string,string>"
        ddl = f"meta {meta}, data {image}, `key` {image}, {exact_json.BAD} string"
        plain = ", ".join(f"'{name}', {exact_json.unmarked(f'p.meta.{quote(name)}')}" for name in META)
        # The lambdas keep all this out of whole-stage code, where one method would be too long to be compiled.
        return (
            texts.selectExpr("*", f"text rlike {literal(exact_json.SUSPICIOUS)} as suspicious")
            .selectExpr("*", f"if(suspicious, {mark}, null) as mark")
            .selectExpr("*", f"from_json({marked}, {literal(ddl)}, {exact_json.OPTIONS}) as p")
            .selectExpr(
                *KAFKA_COLUMNS,
                f"p is null or p.{exact_json.BAD} is not null as unread",
                f"{exact_json.more_behind('text', 'suspicious', 2)} as behind",
                f"if(mark is null or p.meta is null, p.meta, named_struct({plain})) as meta",
                f"{_unmarked_map('p.data')} as d",
                f"{_unmarked_map('p.`key`')} as k",
                *said,
            )
        )

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
            f"{self._key_names()} as key_names",
            f"{_NOTHING} as old_absent",
            f"{_NOTHING} as new_absent",
            f"if({_UPDATES} and k is not null, map_keys(d), null) as changed",
            f"if({_STRUCTURAL}, d, null) as facts",
            "cast(null as string) as misfit",
        ).selectExpr("*", f"{_KEY} as row_key")

    def _key_names(self) -> str:
        """SQL for the key's columns: those that the caller says, else those that Kafka's key names."""
        if self.keys:
            return _names(self.keys)
        said = [
            f"when {text_values.is_table(schema, 't')} then {_names(schema.key)}" for schema in self.known if schema.key
        ]
        text = "cast(key as string)"
        kafka = f"if(startswith({text}, '{{'), map_keys(from_json({text}, 'map<string,string>')), null)"
        return f"case {' '.join(said)} else {kafka} end" if said else kafka


def _unmarked_map(image: str) -> str:
    """A parsed image without the marks of exact numbers, in which each name stands once."""
    # The last one counts, as for JSON parsers at large.
    twice = f"size(array_distinct(map_keys({image}))) < size({image})"
    last = (
        f"map_from_entries(filter(map_entries({image}), (e, i) -> "
        f"array_position(reverse(map_keys({image})), e.key) = size({image}) - i))"
    )
    return exact_json.unmarked_map(f"if({twice}, {last}, {image})")


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
    def _columns(self) -> list[str]:
        return [column.name for column in self.schema.columns]

    def read(self, texts: DataFrame, meta: str, said: Sequence[str]) -> DataFrame:
        """As `MapImages.read`, with `names` (the names in `data` and `key`, where a look does not say what is absent).

        `from_json` writes numbers with a fraction anew. So a value that may be one must be found in quotes; a message
        where it is not is read a second time, with such numbers marked.
        """
        image = f"struct<{', '.join(f'{quote(name)}: string' for name in self._columns)}>"
        ddl = f"meta {meta}, data {image}, `key` {image}, {exact_json.BAD} string"
        mark, marked = exact_json.exact("text")
        # The braces that end the message, meta, data and key; only with others can more stand behind.
        braces = "octet_length(text) - octet_length(replace(text, '}', ''))"
        plain = f"endswith(text, '}}') and {braces} = 2 + int(p.data is not null) + int(p.`key` is not null)"
        looked = texts.selectExpr("*", f"from_json(text, {literal(ddl)}, {exact_json.OPTIONS}) as p").selectExpr(
            *KAFKA_COLUMNS,
            "text",
            f"p is null or p.{exact_json.BAD} is not null as unread",
            f"coalesce(not ({plain}) and {exact_json.more_behind('text', 'true', 2)}, false) as behind",
            "p.meta as meta",
            "p.data as d",
            "p.`key` as k",
            f"if(p.`key` is null, null, substring_index(text, {literal(_DIVIDER)}, 1)) as head",
            f"if(p.`key` is null, null, substring_index(text, {literal(_DIVIDER)}, -1)) as tail",
            *said,
        )
        kept = [name for name in looked.columns if name not in ("head", "tail", "text")]
        clean = []
        for part, found in (("d", "q.data"), ("k", "q.`key`")):
            fields = ", ".join(f"{literal(n)}, {exact_json.unmarked(f'{found}.{quote(n)}')}" for n in self._columns)
            clean.append(f"'{part}', if({found} is null, null, named_struct({fields}))")
        parsed = f"array(from_json({marked}, {literal(ddl)}, {exact_json.OPTIONS}))"
        again = f"transform(array({mark}), mark -> transform({parsed}, q -> named_struct({', '.join(clean)}))[0])[0]"
        parse = "from_json(text, 'data map<string,string>, `key` map<string,string>')"
        names = f"transform(array({parse}), p -> named_struct('data', map_keys(p.data), 'key', map_keys(p.`key`)))[0]"
        return looked.selectExpr(
            *kept,
            f"if({self._rewritten()}, {again}, null) as exact",
            f"if({self._decided()}, null, {names}) as names",
            f"if({_STRUCTURAL}, from_json(text, 'data map<string,string>').data, null) as facts",
        )

    def _rewritten(self) -> str:
        """SQL: whether a value that must be exact may be a number that `from_json` wrote anew.

        Other numbers lose nothing by that: whole ones are not written anew, and binary ones mean the same.
        """
        tests = []
        for part, place in (("d", "if(k is null, text, head)"), ("k", "tail")):
            for column in self.schema.columns:
                kind = column.logical.spark_type
                if kind != "string" and not kind.startswith("decimal"):
                    continue
                value = f"{part}.{quote(column.name)}"
                word = literal(f'{json.dumps(column.name, ensure_ascii=False)}:"')
                test = f"(contains({value}, '.') or contains({value}, 'E'))"
                if kind == "string":
                    test += f" and try_cast({value} as double) is not null"
                tests.append(f"coalesce({test} and not coalesce(contains({place}, {word}), false), false)")
        return f"({' or '.join(tests)} or (k is not null and not {_ONE}))" if tests else "false"

    def _decided(self) -> str:
        """SQL: whether nulls are told from absent columns by a look at the text."""

        def words(image: str, place: str) -> str:
            tests = (
                f"({image}.{quote(n)} is not null"
                # A column named like a part of `meta` may be found there.
                + ("" if n in META else f" or contains({place}, {literal(_null_word(n))})")
                + ")"
                for n in self._columns
            )
            return " and ".join(tests) or "true"

        # A set NULL in `data` of an update is rare enough to be looked up.
        both = f"not contains(head, 'null') and {_ONE} and {words('k', 'tail')}"
        one = f"if(d is null, {words('k', 'text')}, {words('d', 'text')})"
        seen = f"case when d is null and k is null then true when d is null or k is null then {one} else {both} end"
        return f"coalesce(unread or {seen}, false)"

    def laid(self, read: DataFrame) -> DataFrame:
        """The messages with their images; `d` and `k` hold what `data` and `key` say."""
        kept = [name for name in read.columns if name not in ("d", "k", "names", "exact")]
        parts = read.selectExpr(
            *kept, "names", "if(exact is null, d, exact.d) as d", "if(exact is null, k, exact.k) as k"
        )
        typed = parts.selectExpr(
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
        in_data = {
            n: f"(d.{quote(n)} is not null or coalesce(array_contains(names.data, {literal(n)}), false))"
            for n in self._columns
        }
        overlaid = ", ".join(f"{literal(n)}, if({test}, dt.{quote(n)}, kt.{quote(n)})" for n, test in in_data.items())
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
            f"coalesce({', '.join(misfits)}) as misfit",
            f"{self._key(in_data)} as row_key",
        )

    def _key(self, in_data: Mapping[str, str]) -> str:
        """SQL for the key's columns out of the newest image; null where it has none of them."""
        columns = self.schema.key_columns
        if not columns:
            return "cast(null as map<string,string>)"
        newest = {
            c.name: f"case when kind in ('c', 'd', 'u', 'new') then if({in_data[c.name]}, dt.{quote(c.name)}, "
            f"kt.{quote(c.name)}) end"
            for c in columns
        }
        pairs = ", ".join(f"{literal(c.name)}, {canonical_text(newest[c.name], c)}" for c in columns)
        return f"if({' or '.join(f'{sql} is not null' for sql in newest.values())}, map({pairs}), null)"


def _null_word(name: str) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}:null"


def _names(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"


def fenced(columns: Sequence[str]) -> list[str]:
    """The columns, `kind` by way of a lambda: Spark keeps such a projection out of whole-stage code, where expressions
    for many columns make one method that is too long to be compiled."""
    return [f"transform(array({c}), c -> c)[0] as {c}" if c == "kind" else c for c in columns]
