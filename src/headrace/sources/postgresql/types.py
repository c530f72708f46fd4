"""PostgreSQL's types: what they mean, and how what the server prints of them becomes canonical text.

Built-in types are known by their numbers, which are the same everywhere; others come from the catalog, and those that
extensions bring are known by name. A type that nobody knows is a string, as the server prints it.

The server prints as a session's settings say; all sessions have those of `connection`. Values that no calendar type
holds (infinity, years before 1 and after 9999) stay as they are printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text
from headrace.sources.postgresql.nested import nested_texts
from headrace.wire.printed_values import CLOCK, DAY_AND_CLOCK, base64_of_hex, moment_texts


def booleans(values: pa.StringArray) -> pa.StringArray:
    """`t` and `f`."""
    return pc.if_else(pc.equal(values, "t"), "true", "false")


def money(values: pa.StringArray) -> pa.StringArray:
    """`-$1,234.50` as the locale C has it."""
    return pc.replace_substring(pc.replace_substring(values, "$", ""), ",", "")


def floats(values: pa.StringArray, logical: LogicalType) -> pa.StringArray:
    """The server has the fewest digits as well, but leaves `.0` out, and writes other exponents."""
    # Of numbers near 0.0001 the exponent depends on the width.
    plain = pc.match_substring_regex(values, r"^-?([1-9][0-9]*|0)(\.([1-9][0-9]*|0[1-9][0-9]*|00[1-9][0-9]*))?$")
    whole = pc.and_(plain, pc.invert(pc.match_substring(values, ".")))
    texts = pc.if_else(whole, pc.binary_join_element_wise(values, ".0", ""), values)
    odd = pc.invert(plain).fill_null(False)
    if not pc.any(odd).as_py():
        return texts
    kind = pa.float32() if logical.kind == "float32" else pa.float64()
    return pc.replace_with_mask(texts, odd, arrow_text(pc.cast(values.filter(odd), kind), logical))


_BUILT_IN = """
16 bool 1000, 17 bytea* 1001, 18 char 1002, 19 name 1003, 20 int8 1016, 21 int2 1005, 22 int2vector 1006,
23 int4 1007, 24 regproc 1008, 25 text* 1009, 26 oid 1028, 27 tid 1010, 28 xid 1011, 29 cid 1012, 30 oidvector 1013,
114 json* 199, 142 xml* 143, 194 pg_node_tree* 0, 600 point 1017, 601 lseg 1018, 602 path* 1019, 603 box; 1020,
604 polygon* 1027, 628 line 629, 650 cidr* 651, 700 float4 1021, 701 float8 1022, 718 circle 719, 774 macaddr8 775,
790 money 791, 829 macaddr 1040, 869 inet* 1041, 1033 aclitem 1034, 1042 bpchar* 1014, 1043 varchar* 1015,
1082 date 1182, 1083 time 1183, 1114 timestamp 1115, 1184 timestamptz 1185, 1186 interval 1187, 1266 timetz 1270,
1560 bit* 1561, 1562 varbit* 1563, 1700 numeric* 1231, 1790 refcursor* 2201, 2202 regprocedure 2207,
2203 regoper 2208, 2204 regoperator 2209, 2205 regclass 2210, 2206 regtype 2211, 2950 uuid 2951,
2970 txid_snapshot* 2949, 3220 pg_lsn 3221, 3614 tsvector* 3643, 3615 tsquery 3645, 3642 gtsvector 3644,
3734 regconfig 3735, 3769 regdictionary 3770, 3802 jsonb* 3807, 3904 int4range*r 3905, 3906 numrange*r 3907,
3908 tsrange*r 3909, 3910 tstzrange*r 3911, 3912 daterange*r 3913, 3926 int8range*r 3927, 4072 jsonpath* 4073,
4089 regnamespace 4090, 4096 regrole 4097, 4191 regcollation 4192, 4451 int4multirange*m 6150,
4532 nummultirange*m 6151, 4533 tsmultirange*m 6152, 4534 tstzmultirange*m 6153, 4535 datemultirange*m 6155,
4536 int8multirange*m 6157, 5038 pg_snapshot* 5039, 5069 xid8 271
"""
"""Number, name and the number of the array type. Behind the name: `*` where values may be stored out of line, then `r`
for a range and `m` for several; `;` where that stands between the elements of an array."""
_KINDS = {
    "bool": "boolean", "int2": "int16", "int4": "int32", "int8": "int64", "oid": "int64", "xid": "int64",
    "cid": "int64", "xid8": "uint64", "float4": "float32", "float8": "float64", "bytea": "bytes", "date": "date",
    "interval": "interval", "uuid": "uuid", "json": "json", "jsonb": "json", "xml": "xml", "int2vector": "nested",
    "oidvector": "nested",
}  # fmt: skip
_OF_EXTENSIONS = {
    "geometry": "bytes",
    "geography": "bytes",
    "hstore": "nested",
    "vector": "nested",
    "halfvec": "nested",
}
_MOMENTS = {"time": "time", "timestamp": "timestamp", "timestamptz": "instant"}
_TEXT_FORMS = frozenset(("boolean", "float32", "float64", "bytes", "time", "timestamp", "instant"))
"""Logical types whose canonical text is not what the server prints."""
_JSON_AS_PRINTED = ("vector", "halfvec")
_FIRST_OF_USERS = 16_384
_LEAST_MOVED = 24
"""The bytes of a value that the server never stores out of line."""


class Queries(Protocol):
    """What answers SQL."""

    def rows(self, sql: str, params: Sequence[object] = ()) -> Sequence[tuple[Any, ...]]:
        """The rows of a query."""


@dataclass(frozen=True)
class NativeType:
    """What a column's type is, domains resolved to what they are made of.

    Args:
        oid: the type's number.
        typmod: its modifier, such as precision and scale; -1 for none. That of an array is its elements'.
        name: its name in the catalog: `int4`, `numeric`, an enum's own; that of an array is `_` and its elements'.
        kind: `b` base or array, `e` enum, `c` composite, `r` range, `m` multirange, `p` pseudo-type.
        variable: whether values may be stored out of line where they are long enough.
        delimiter: what stands between the elements of an array of such values.
        element: the elements' type, of an array.
        fields: names and types, of a composite type.
        labels: of an enum, in its order.
        other_fields: what `fields` may be as well, where the type was altered and it is not known when.
    """

    oid: int
    typmod: int = -1
    name: str = ""
    kind: str = "b"
    variable: bool = False
    delimiter: str = ","
    element: NativeType | None = None
    fields: tuple[tuple[str, NativeType], ...] = ()
    labels: tuple[str, ...] = ()
    other_fields: tuple[tuple[str, NativeType], ...] = ()

    @cached_property
    def logical(self) -> LogicalType:
        if self.element is not None or (self.kind == "c" and self.fields):
            return LogicalType("nested")
        if self.kind != "b":
            return LogicalType("string")
        if self.oid >= _FIRST_OF_USERS:
            return LogicalType(_OF_EXTENSIONS.get(self.name, "string"))
        if self.name == "numeric":
            return self._numeric()
        if self.name == "money":
            return LogicalType("decimal", 19, 2)
        if self.name in _MOMENTS:
            return LogicalType(_MOMENTS[self.name], 6 if self.typmod < 0 else self.typmod)
        return LogicalType(_KINDS.get(self.name, "string"))

    def _numeric(self) -> LogicalType:
        if self.typmod < 0:
            return LogicalType("decimal")
        precision, scale = self._digits
        if scale < 0:
            return LogicalType("decimal", precision - scale, 0)
        return LogicalType("decimal", max(precision, scale), scale)

    @property
    def _digits(self) -> tuple[int, int]:
        packed = self.typmod - 4
        return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024

    @property
    def length(self) -> int | None:
        """Characters, bits or digits, as declared; None where nothing bounds them. An array has its elements'."""
        if self.element is not None:
            return self.element.length
        if self.typmod < 0:
            return None
        if self.name == "numeric":
            return self._digits[0]
        if self.name in ("varchar", "bpchar"):
            return self.typmod - 4
        return self.typmod if self.name in ("bit", "varbit") else None

    @property
    def scale(self) -> int | None:
        """Digits after the point, as declared, below 0 too; fraction digits of a time. As `length` for an array."""
        if self.element is not None:
            return self.element.scale
        if self.typmod < 0:
            return None
        if self.name == "numeric":
            return self._digits[1]
        return self.typmod if self.name in _MOMENTS or self.name == "timetz" else None

    @property
    def enum_values(self) -> tuple[str, ...] | None:
        """The labels of an enum, and of an array's elements; None for other types."""
        if self.element is not None:
            return self.element.enum_values
        return self.labels if self.kind == "e" else None

    @property
    def large(self) -> bool:
        """Whether a value may be stored out of line, so that a change that leaves it as it is may not have it."""
        return self.variable and (self._most_bytes is None or self._most_bytes > _LEAST_MOVED)

    @property
    def _most_bytes(self) -> int | None:
        """How many bytes a value takes at the most; None where nothing bounds it."""
        if self.name in ("inet", "cidr"):
            return 20
        if self.typmod < 0 or self.element is not None:
            return None
        if self.name == "numeric":
            precision, scale = self._digits
            # Four digits in two bytes, before and after the point.
            return 3 + 2 * (-(-max(precision - scale, 0) // 4) + -(-max(scale, 0) // 4))
        if self.length is None:
            return None
        return 1 + 4 * self.length if self.name in ("varchar", "bpchar") else 5 + (self.length + 7) // 8

    @cached_property
    def is_plain(self) -> bool:
        """Whether the canonical text is what the server prints."""
        if self.logical.kind == "nested":
            return self.name in _JSON_AS_PRINTED
        return self.logical.kind not in _TEXT_FORMS and self.name != "money"

    def texts(self, values: pa.StringArray) -> pa.StringArray:
        """Canonical texts of what the server prints; null stays null.

        Infinite dates and times, and those before year 1 or after 9999, stay as they are printed, as do values that
        don't have the form of their type.
        """
        logical = self.logical
        if self.is_plain:
            return values
        if logical.kind == "nested":
            return nested_texts(values, self)
        if logical.kind == "boolean":
            return booleans(values)
        if logical.kind in ("float32", "float64"):
            return floats(values, logical)
        if logical.kind == "bytes":
            return base64_of_hex(values, 2 if self.name == "bytea" else 0)
        if self.name == "money":
            return money(values)
        fixed = CLOCK if logical.kind == "time" else DAY_AND_CLOCK
        return moment_texts(values, fixed, logical.digits, zoned=logical.kind == "instant")

    def fields_of(self, count: int) -> Sequence[tuple[str, NativeType]] | None:
        """The fields of a composite value that has so many; None where that is not known."""
        matching = [fields for fields in (self.fields, self.other_fields) if fields and len(fields) == count]
        return matching[0] if len(matching) == 1 else None

    @property
    def parts(self) -> Iterator[NativeType]:
        yield self
        for inner in (*([] if self.element is None else [self.element]), *(native for _, native in self.fields)):
            yield from inner.parts

    def to_json(self) -> list[Any]:
        """The arguments that make it again, without those at the end that are usual."""
        element = None if self.element is None else self.element.to_json()
        fields = [[name, native.to_json()] for name, native in self.fields]
        parts = [
            self.oid, self.typmod, self.name, self.kind, self.variable, self.delimiter, element, fields,
            list(self.labels),
        ]  # fmt: skip
        while len(parts) > 3 and parts[-1] == _USUAL[len(parts) - 1]:
            parts.pop()
        return parts

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> NativeType:
        """Read `to_json`'s form back."""
        oid, typmod, name, kind, variable, delimiter, element, fields, labels = [*data, *_USUAL[len(data) :]]
        return cls(
            oid,
            typmod,
            name,
            kind,
            variable,
            delimiter,
            None if element is None else cls.from_json(element),
            tuple((name, cls.from_json(native)) for name, native in fields),
            tuple(labels),
        )


_USUAL: tuple[Any, ...] = (0, -1, "", "b", False, ",", None, [], [])
"""The values that `NativeType.to_json` leaves out at the end."""


@dataclass(frozen=True)
class CatalogType:
    """A type as the catalog has it.

    Args:
        name: its name.
        kind: as `NativeType.kind`; `d` for a domain.
        variable: as `NativeType.variable`.
        delimiter: as `NativeType.delimiter`.
        element: the number of the elements' type; 0 for what is not an array.
        base: the number of the type that a domain or a range is made of, or of the range that a multirange is made of.
        typmod: that type's modifier.
        fields: name, type and modifier of a composite type's fields.
        labels: of an enum.
        numbers: by what the catalog identifies the fields or the labels, whatever they are called; empty where an
            earlier release wrote the type.
        other_fields: as `NativeType.other_fields`.
    """

    name: str
    kind: str = "b"
    variable: bool = False
    delimiter: str = ","
    element: int = 0
    base: int = 0
    typmod: int = -1
    fields: tuple[tuple[str, int, int], ...] = ()
    labels: tuple[str, ...] = ()
    numbers: tuple[int, ...] = field(default=(), compare=False)
    other_fields: tuple[tuple[str, int, int], ...] = ()

    def to_json(self) -> list[Any]:
        """The arguments that make it again."""
        plain = [self.name, self.kind, self.variable, self.delimiter, self.element, self.base, self.typmod]
        numbers = [list(self.numbers)] if self.numbers else []
        return [*plain, list(map(list, self.fields)), list(self.labels), *numbers]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> CatalogType:
        """Read `to_json`'s form back."""
        name, kind, variable, delimiter, element, base, typmod, fields, labels, *numbers = data
        parts = tuple((name, oid, modifier) for name, oid, modifier in fields)
        known = tuple(numbers[0]) if numbers else ()
        return cls(name, kind, variable, delimiter, element, base, typmod, parts, tuple(labels), known)

    def is_another_than(self, now: CatalogType | None) -> bool:
        """Whether a later state is another one; null for a type that is gone."""
        if now is None:
            return True
        return now != self or bool(self.numbers and self.numbers != now.numbers)

    def before(self, now: CatalogType | None) -> CatalogType:
        """The type for values from before a change to a later state, and for some from after it.

        Attributes that only got other names keep the earlier ones. Otherwise a value shows by how many it has which
        state it is of.
        """
        if now is None or now.fields == self.fields or (self.numbers and self.numbers == now.numbers):
            return self
        return replace(self, other_fields=now.fields)

    def changed_by(self, now: CatalogType) -> str:
        """What a later state of the type prints otherwise of values from before, as a clause; empty for nothing."""
        if self.kind == "e" and now.kind == "e":
            after = dict(zip(now.numbers, now.labels, strict=False))
            if self.numbers:
                lost = (
                    label for number, label in zip(self.numbers, self.labels, strict=True) if after.get(number) != label
                )
            else:
                lost = (label for label in self.labels if label not in now.labels)
            label = next(lost, None)
            return "" if label is None else f"label '{label}' of type {now.name} has another name or is gone"
        if self.kind == "c" and now.kind == "c":
            same = self.fields == now.fields and (not self.numbers or self.numbers == now.numbers)
            return "" if same else f"type {now.name} has other attributes"
        return ""


def _built_in(lines: Iterable[str]) -> dict[int, CatalogType]:
    types = {}
    for line in lines:
        oid, name, array = line.split()
        plain = name.rstrip("rm") if "*" in name else name
        kind = name[len(plain) :] or "b"
        bare = plain.rstrip("*;")
        types[int(oid)] = CatalogType(bare, kind, "*" in plain, ";" if ";" in plain else ",")
        if int(array):
            types[int(array)] = CatalogType(f"_{bare}", variable=True, element=int(oid))
    return types


BUILT_IN = _built_in(_BUILT_IN.split(","))
"""The types that have the same number in every database."""
_BUILT_IN_BY_NAME = {kind.name: oid for oid, kind in BUILT_IN.items()}
# In the order of their numbers, so that equal catalogs give equal texts.
_TYPES = f"""
WITH used AS MATERIALIZED (SELECT DISTINCT atttypid FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped)
SELECT t.oid::bigint, t.typname::text, t.typtype::text, t.typlen = -1 AND t.typstorage <> 'p', t.typdelim::text,
  CASE WHEN t.typinput = 'array_in'::regproc THEN t.typelem::bigint ELSE 0 END,
  coalesce((SELECT CASE t.typtype WHEN 'r' THEN r.rngsubtype ELSE r.rngtypid END FROM pg_range r
    WHERE t.oid IN (r.rngtypid, r.rngmultitypid)), t.typbasetype)::bigint, t.typtypmod,
  (SELECT json_agg(json_build_array(a.attname, a.atttypid::bigint, a.atttypmod, a.attnum) ORDER BY a.attnum)
   FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)::text,
  (SELECT json_agg(json_build_array(e.enumlabel, e.oid::bigint) ORDER BY e.enumsortorder)
   FROM pg_enum e WHERE e.enumtypid = t.oid)::text
FROM pg_type t
LEFT JOIN pg_type i ON i.oid = t.typelem AND t.typinput = 'array_in'::regproc
LEFT JOIN pg_class c ON c.oid = coalesce(i.typrelid, t.typrelid) AND c.relkind <> 'c'
WHERE t.typtype <> 'p' AND t.oid <> ALL ('{{{",".join(map(str, sorted(BUILT_IN)))}}}'::oid[])
  AND (c.oid IS NULL OR t.oid IN (SELECT atttypid FROM used) OR t.typarray IN (SELECT atttypid FROM used))
ORDER BY t.oid
"""


@dataclass(frozen=True)
class TypeCatalog:
    """What is known of types, by their numbers.

    Args:
        types: those that are not built in.
    """

    types: Mapping[int, CatalogType] = field(default_factory=dict)
    _resolved: dict[tuple[int, int], NativeType] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, connection: Queries) -> TypeCatalog:
        types = {}
        for oid, name, kind, variable, delimiter, element, base, typmod, fields, labels in connection.rows(_TYPES):
            parts = json.loads(fields or "[]") if kind == "c" else []
            members = json.loads(labels or "[]")
            types[int(oid)] = CatalogType(
                str(name),
                str(kind),
                bool(variable),
                str(delimiter),
                int(element),
                int(base),
                int(typmod),
                tuple((str(n), int(o), int(m)) for n, o, m, _ in parts),
                tuple(str(label) for label, _ in members),
                tuple(int(member[-1]) for member in (*parts, *members)),
            )
        return cls(types)

    def resolve(self, oid: int, typmod: int = -1) -> NativeType:
        """The type that a column has; a string where the number is not known.

        Args:
            oid: the type's number, or a domain's.
            typmod: the column's modifier.
        """
        native = self._resolved.get((oid, typmod))
        if native is None:
            native = self._resolved[oid, typmod] = self._resolve(oid, typmod)
        return native

    def _resolve(self, oid: int, typmod: int) -> NativeType:
        known = BUILT_IN.get(oid) or self.types.get(oid)
        if known is None:
            return NativeType(oid, typmod, variable=True)
        if known.kind == "d":
            return self.resolve(known.base, known.typmod)
        element = self.resolve(known.element, typmod) if known.element else None
        return NativeType(
            oid,
            typmod,
            known.name if element is None else f"_{element.name}",
            known.kind,
            known.variable,
            known.delimiter,
            element,
            self._fields(known.fields),
            known.labels,
            self._fields(known.other_fields),
        )

    def _fields(self, fields: Iterable[tuple[str, int, int]]) -> tuple[tuple[str, NativeType], ...]:
        return tuple((name, self.resolve(part, modifier)) for name, part, modifier in fields)

    def before(self, earlier: Mapping[int, CatalogType]) -> TypeCatalog:
        """The types for what was written before a change of some, which are given as they were."""
        return TypeCatalog({**self.types, **{oid: kind.before(self.types.get(oid)) for oid, kind in earlier.items()}})

    def with_gone(self, earlier: Mapping[int, CatalogType]) -> TypeCatalog:
        """With types that are not there any more."""
        return TypeCatalog({**earlier, **self.types})

    def with_logged(self, oid: int, schema: str, name: str) -> TypeCatalog:
        """With a type that the log names and the catalog never showed.

        Args:
            oid: its number.
            schema: where the type lives that it is made of, where it is a domain; else where it does.
            name: that type's name.
        """
        if oid in self.types or oid in BUILT_IN:
            return self
        base = _BUILT_IN_BY_NAME.get(name, 0) if schema == "pg_catalog" else 0
        described = CatalogType(name, "d", base=base) if base else CatalogType(name, variable=True)
        return TypeCatalog({**self.types, oid: described})

    def changed_by(self, now: TypeCatalog) -> dict[int, str]:
        """The types of which a later state prints values from before otherwise, each with what changed in it."""
        both = ((oid, known.changed_by(now.types[oid])) for oid, known in self.types.items() if oid in now.types)
        changes = {oid: change for oid, change in both if change}
        for kind in "rm":
            # A range prints values of its type, and a multirange ranges.
            changed = ((oid, changes.get(known.base)) for oid, known in now.types.items() if known.kind == kind)
            changes |= {oid: change for oid, change in changed if change}
        return changes

    def to_json(self) -> dict[str, Any]:
        """JSON values, by number as text."""
        return {str(oid): known.to_json() for oid, known in self.types.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TypeCatalog:
        """Read `to_json`'s form back."""
        return cls({int(oid): CatalogType.from_json(known) for oid, known in data.items()})
