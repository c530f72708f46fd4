"""Kernels over images: names and values of rows, as `json_writer.Entries`."""

from __future__ import annotations

from typing import Any

from headrace.wire.arrays import TextView
from headrace.wire.compiled import kernel
from headrace.wire.json_writer import Entries, is_valid
from headrace.wire.spans import Array, U, same


@kernel
def changed(
    old: Entries,
    old_names: TextView,
    old_values: TextView,
    new: Entries,
    new_names: TextView,
    new_values: TextView,
    named_offsets: Array,
    named: TextView,
    kept: Array,
) -> None:
    """Fill `kept`: whether an entry of the old image is not in the new one, is otherwise there, or is named.

    Names are expected in the same order, and looked for one by one where they are not.
    """
    for r in range(old.present.size):
        if not old.present[r] or not new.present[r]:
            continue
        first, end = new.offsets[r], new.offsets[r + 1]
        guess = first
        for e in range(old.offsets[r], old.offsets[r + 1]):
            k = old.names[U(e)]
            match = -1
            for step in range(end - first):
                other = guess + step
                if other >= end:
                    other -= end - first
                if same_text(old_names, k, new_names, new.names[U(other)]):
                    match = other
                    break
            if match < 0:
                continue
            guess = match + 1 if match + 1 < end else first
            if not _same_value(old_values, old.values[U(e)], new_values, new.values[U(match)]):
                continue
            kept[U(e)] = False
            for n in range(named_offsets[r], named_offsets[r + 1]):
                if same_text(old_names, k, named, n):
                    kept[U(e)] = True


@kernel
def same_text(a: TextView, i: Any, b: TextView, j: Any) -> Any:
    size = a.offsets[U(i + 1)] - a.offsets[U(i)]
    if b.offsets[U(j + 1)] - b.offsets[U(j)] != size:
        return False
    return same(a.data, a.offsets[U(i)], b.data, b.offsets[U(j)], size)


@kernel
def _same_value(a: TextView, i: Any, b: TextView, j: Any) -> Any:
    if not is_valid(a, i):
        return not is_valid(b, j)
    return is_valid(b, j) and same_text(a, i, b, j)
