"""What a statement alone says of a column that it declares."""

from __future__ import annotations

import re

from headrace.changes import Column
from headrace.errors import SchemaError
from headrace.sources.mysql.alterations import Definition
from headrace.sources.mysql.types import WITH_CHARSET, NativeType


def lacks_charset(definition: Definition | None) -> bool:
    """Whether a column has a character set that its definition does not name."""
    return (
        definition is not None and definition.charset is None and re.split(r"[( ]", definition.type)[0] in WITH_CHARSET
    )


def declared_column(
    name: str, definition: Definition | None, charset: str | None = None
) -> tuple[Column, NativeType] | None:
    """A column as a statement alone declares it; None where that does not say all of its type."""
    if definition is None or not definition.type:
        return None
    try:
        native = NativeType.of_catalog(definition.type, charset if lacks_charset(definition) else definition.charset)
    except SchemaError:
        return None
    if (native.kind in WITH_CHARSET and native.charset is None) or native.kind == "timestamp":
        return None
    column = Column(
        name=name,
        position=0,
        logical=native.logical,
        native_type=native.name,
        length=native.length,
        scale=native.scale,
        nullable=definition.nullable is not False,
        identity=definition.identity,
        generated=definition.generated,
        large=native.large,
        enum_values=native.enum_values,
    )
    return column, native
