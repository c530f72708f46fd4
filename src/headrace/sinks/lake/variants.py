"""JSON columns as VARIANT: what of a document fits in one, and how both are compared.

Spark reads a number of JSON as a decimal, if it has at most 38 digits and no exponent, and as a double otherwise. No
number may pass through a double, so a document that has such a number stays a text: a variant that is one string.
So does one that no variant can hold, such as an object that has a name twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.changes.table import Column, TableSchema
from headrace.changes.typed import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VARIANT = "variant"
# Possessive, so that Java needs no stack for a long text.
_TEXTS = r'(?s)"(?:[^"\\]++|\\.)*+"'
_INEXACT = r"[0-9][eE]|[0-9]{39}|[0-9.]{40}"


def as_variant(document: str) -> str:
    """Spark SQL for the variant of a JSON document (an SQL expression of type string)."""
    inexact = f"regexp_replace({document}, {literal(_TEXTS)}, '') rlike {literal(_INEXACT)}"
    return f"coalesce(if({inexact}, null, try_parse_json({document})), cast({document} as variant))"


def variants_in(rows: DataFrame) -> frozenset[str]:
    return frozenset(field.name for field in rows.schema if field.dataType.simpleString() == VARIANT)


def with_documents(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """The rows with JSON text in place of these columns, which are variants or documents: equal for equal variants.

    Read as a document again, the text gives the same variant.
    """
    names = frozenset(names)
    if not names:
        return rows
    variants = variants_in(rows)
    return rows.selectExpr(
        *(
            f"to_json({quote(name) if name in variants else as_variant(quote(name))}) as {quote(name)}"
            if name in names
            else quote(name)
            for name in rows.columns
        )
    )


def may_be_variant(column: Column, schema: TableSchema) -> bool:
    """Whether a column has JSON documents, and is one that can be a variant.

    Variants can't be compared, and so tell no row from another.
    """
    return column.logical.kind == "json" and bool(schema.key) and column.name not in schema.key
