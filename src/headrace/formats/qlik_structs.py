"""Struct images of Qlik messages: the map images of one known table, typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.texts import canonical_text
from headrace.changes.typed import literal, quote
from headrace.formats import text_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IMAGES = ("old", "new")


def typed(imaged: DataFrame, schema: TableSchema) -> DataFrame:
    """Rows with `old_image` and `new_image` as structs in place of maps, `old_absent`, `new_absent`, `misfit`, and the
    key of the structure where it has one.

    A text that does not fit its column exactly is a misfit.
    """
    kept = [name for name in imaged.columns if name not in ("old_image", "new_image", "row_key")]
    # The lambda keeps a projection out of whole-stage code, where one method would be too long to be compiled.
    fenced = [f"transform(array({i}_absent), a -> a)[0] as {i}_absent" for i in _IMAGES]
    texts = imaged.selectExpr(
        *kept,
        "row_key as said_key",
        *(f"{_texts(f'{i}_image', schema)} as {i}_texts" for i in _IMAGES),
        *(f"{_absent(f'{i}_image', schema)} as {i}_absent" for i in _IMAGES),
    )
    made = texts.selectExpr(
        *(name for name in texts.columns if not name.endswith("_absent")),
        *fenced,
        *(f"{text_values.typed_struct(f'{i}_texts', schema)} as {i}_image" for i in _IMAGES),
    )
    misfits = ", ".join(text_values.misfit_sentence(f"{i}_texts", f"{i}_image", schema) for i in _IMAGES)
    return made.selectExpr(
        *kept, "old_image", "new_image", *fenced, f"coalesce({misfits}) as misfit", f"{_key(schema)} as row_key"
    )


def _texts(image: str, schema: TableSchema) -> str:
    fields = ", ".join(f"{literal(c.name)}, {image}[{literal(c.name)}]" for c in schema.columns)
    return f"if({image} is null, null, named_struct({fields}))"


def _absent(image: str, schema: TableSchema) -> str:
    names = _names([column.name for column in schema.columns])
    left = f"array_except({names}, map_keys({image}))"
    return f"if({image} is null or size({left}) = 0, null, {left})"


def _key(schema: TableSchema) -> str:
    if not schema.key:
        return "said_key"
    newest = "if(new_image is null, old_image, new_image)"
    pairs = ", ".join(
        f"{literal(c.name)}, {canonical_text(f'{newest}.{quote(c.name)}', c)}" for c in schema.key_columns
    )
    some = " or ".join(f"{newest}.{quote(c.name)} is not null" for c in schema.key_columns)
    return f"if({some}, map({pairs}), null)"


def _names(names: Sequence[str]) -> str:
    return f"array({', '.join(map(literal, names))})"
