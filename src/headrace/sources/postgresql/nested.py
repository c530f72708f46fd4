"""Values inside values: arrays, composite values and hstore as the server prints them, and as JSON texts.

| printed | JSON |
|---|---|
| `{1,NULL,3}`, `{{1,2},{3,4}}` | `[1,null,3]`, `[[1,2],[3,4]]` |
| `(1,"a b",)` of fields a, b and c | `{"a":1,"b":"a b","c":null}` |
| `"a"=>"1", "b"=>NULL` | `{"a":"1","b":null}` |
| `1 2` of int2vector | `[1,2]` |

Whole numbers, booleans and finite binary numbers are JSON's own, all other values strings with their canonical texts:
so a decimal keeps its digits, and `NaN` has a form. An array whose bounds don't begin with 1 (`[2:3]={7,8}`), and what
does not have the form of its type, stays as it is printed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType
from headrace.wire.canonical import settled
from headrace.wire.json_writer import to_text
from headrace.wire.printed_values import array_texts, hstore_texts

_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|(NULL))(?:, |\Z)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_OWN = frozenset(("boolean", "int16", "int32", "int64", "uint64", "float32", "float64"))
"""Logical types whose values are JSON's own."""
_WORDS = frozenset(("NaN", "Infinity", "-Infinity"))
_VECTORS = ("int2vector", "oidvector")


class Printed(Protocol):
    """What the reading of nested values needs to know of a type."""

    @property
    def name(self) -> str:
        """The type's name."""

    @property
    def delimiter(self) -> str:
        """What stands between the elements of an array of such values."""

    @property
    def element(self) -> Printed | None:
        """The type of the elements; None for other types."""

    @property
    def fields(self) -> Sequence[tuple[str, Printed]]:
        """The names and types of a composite type's fields."""

    @property
    def logical(self) -> LogicalType:
        """What the values mean."""

    @property
    def is_plain(self) -> bool:
        """Whether canonical texts are what is printed."""

    def fields_of(self, count: int) -> Sequence[tuple[str, Printed]] | None:
        """The fields of a composite value that has so many; None where that is not known."""

    def texts(self, values: pa.StringArray) -> pa.StringArray:
        """Canonical texts of printed values."""


class OddForm(ValueError):
    """A printed value is not of the form that its type has. It does not contain the value."""


Items = list["str | Items | None"]


def nested_texts(values: pa.StringArray, native: Printed) -> pa.StringArray:
    """JSON texts of a column of printed values of a nested type; null stays null.

    Composite values, and arrays of what has another text form in our texts, are read row by row in Python: they are
    rare.
    """
    if native.name in _VECTORS:
        listed = pc.replace_substring(values, " ", ",")
        return pc.binary_join_element_wise("[", listed, "]", "")
    element = native.element
    if native.name == "hstore":
        printed = hstore_texts(values)
    elif element is not None and element.is_plain and element.logical.kind != "nested":
        printed = array_texts(values, element.delimiter, quoted=element.logical.kind not in _OWN)
    else:
        return pa.array(written(native, values), pa.string())
    return settled(printed.texts, printed.left, written(native, values.take(pa.array(printed.left))))


def written(native: Printed, values: pa.StringArray) -> list[str | None]:
    """The same in plain Python: the specification of the kernels."""
    writer = _Writer()
    for text in values.to_pylist():
        writer.row(native, text)
    return writer.texts()


class _Writer:
    """Writes JSON texts in two steps: first what is around single values, then all single values of a type at once."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._ends: list[int | None] = []
        self._singles: dict[int, tuple[Printed, list[int], list[str]]] = {}

    def row(self, native: Printed, text: str | None) -> None:
        if text is None:
            self._ends.append(None)
            return
        self._value(native, text, outermost=True)
        self._ends.append(len(self._parts))

    def texts(self) -> list[str | None]:
        for native, places, singles in self._singles.values():
            texts = native.texts(pa.array(singles, pa.string())).to_pylist()
            is_own = native.logical.kind in _OWN
            for place, text in zip(places, texts, strict=True):
                self._parts[place] = text if is_own and text not in _WORDS else to_text(text)
        values: list[str | None] = []
        start = 0
        for end in self._ends:
            if end is None:
                values.append(None)
            else:
                values.append("".join(self._parts[start:end]))
                start = end
        return values

    def _value(self, native: Printed, text: str | None, *, outermost: bool = False) -> None:
        if text is None:
            self._parts.append("null")
        elif native.logical.kind == "nested" or native.fields:
            try:
                self._nested(native, text)
            except OddForm:
                self._parts.append(text if outermost else to_text(text))
        else:
            _, places, singles = self._singles.setdefault(id(native), (native, [], []))
            places.append(len(self._parts))
            singles.append(text)
            self._parts.append("")

    def _nested(self, native: Printed, text: str) -> None:
        if native.element is not None and native.name not in _VECTORS:
            self._items(native.element, array_items(text, native.element.delimiter))
        elif native.fields:
            values = record_values(text)
            fields = native.fields_of(len(values))
            if fields is None:
                raise OddForm("the type has other fields")
            for number, ((name, field), value) in enumerate(zip(fields, values, strict=True)):
                self._parts.append(f"{',' if number else '{'}{to_text(name)}:")
                self._value(field, value)
            self._parts.append("}")
        elif native.name == "hstore":
            self._parts.append(to_text(hstore_pairs(text)))
        else:
            # What is a JSON text as it is printed, or as a column is made one.
            self._parts.append(str(native.texts(pa.array([text], pa.string()))[0].as_py()))

    def _items(self, element: Printed, items: Items) -> None:
        self._parts.append("[")
        for number, item in enumerate(items):
            if number:
                self._parts.append(",")
            if isinstance(item, list):
                self._items(element, item)
            else:
                self._value(element, item)
        self._parts.append("]")


def array_items(text: str, delimiter: str = ",") -> Items:
    """The elements of a printed array, those of its inner dimensions as lists; null for NULL.

    Raises:
        OddForm: it is none, or its bounds don't begin with 1.
    """
    if not text.startswith("{"):
        raise OddForm("the array has bounds of its own")
    items: Items = []
    open_lists: list[Items] = [items]
    token = _tokens(delimiter)
    at, due = 1, True
    while open_lists:
        match = token.match(text, at)
        if match is None:
            raise OddForm("not an array")
        at = match.end()
        quoted, bare, mark = match[1], match[2], match[3]
        if mark is None or mark == "{":
            if not due:
                raise OddForm("two elements without a delimiter")
            due = False
            if mark == "{":
                inner: Items = []
                open_lists[-1].append(inner)
                open_lists.append(inner)
                due = True
            elif quoted is not None:
                open_lists[-1].append(_ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted)
            else:
                open_lists[-1].append(None if bare == "NULL" else bare)
        elif mark == "}":
            closed = open_lists.pop()
            if due and closed:
                raise OddForm("an element is missing")
            due = False
        else:
            if due:
                raise OddForm("an element is missing")
            due = True
    if at != len(text):
        raise OddForm("something follows the array")
    return items


_TOKENS: dict[str, re.Pattern[str]] = {}


def _tokens(delimiter: str) -> re.Pattern[str]:
    """An element in quotes, one without, or a mark."""
    compiled = _TOKENS.get(delimiter)
    if compiled is None:
        mark = re.escape(delimiter)
        pattern = rf'"((?:[^"\\]|\\.)*)"|((?:[^"\\{{}}{mark}])+)|([{{}}{mark}])'
        compiled = _TOKENS[delimiter] = re.compile(pattern, re.DOTALL)
    return compiled


_FIELD = re.compile(r'((?:"(?:[^"\\]|\\.|"")*"|[^"\\,()]|\\.)*)([,)])', re.DOTALL)
_IN_FIELD = re.compile(r'""|\\(.)', re.DOTALL)


def record_values(text: str) -> list[str | None]:
    """The fields of a printed composite value; null for one that is left out.

    Raises:
        OddForm: it is none.
    """
    if not text.startswith("("):
        raise OddForm("not a composite value")
    values: list[str | None] = []
    at, mark = 1, ","
    while mark == ",":
        match = _FIELD.match(text, at)
        if match is None:
            raise OddForm("not a composite value")
        at, printed, mark = match.end(), match[1], match[2]
        values.append(_field(printed) if printed else None)
    if at != len(text):
        raise OddForm("something follows the composite value")
    return values


def _field(printed: str) -> str:
    if not printed.startswith('"'):
        return printed
    return _IN_FIELD.sub(lambda match: match[1] or '"', printed[1:-1])


def hstore_pairs(text: str) -> dict[str, str | None]:
    """The keys and values of a printed hstore, in its order.

    Raises:
        OddForm: it is none.
    """
    pairs: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            raise OddForm("not an hstore")
        at = match.end()
        key = _ESCAPED.sub(r"\1", match[1])
        pairs[key] = None if match[3] else _ESCAPED.sub(r"\1", match[2])
    return pairs
