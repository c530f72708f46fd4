"""The kernels of `tape`. Places come from the reader, so they are inside the tokens; texts are inside the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.wire.compiled import kernel
from headrace.wire.json_exact import ARRAY, ESCAPED, ESCAPED_NAME, NULL, OBJECT
from headrace.wire.json_reader import Tokens
from headrace.wire.names import NameTable, look_up
from headrace.wire.spans import Array, U, copy, hashed, put_unescaped, same, set_bit


@kernel
def find(data: Array, tokens: Tokens, at: Array, group: Array, names: NameTable, seen: Array, indexes: Array) -> None:
    """Fill `found[index, row]` with the values of the members that a row's set names.

    Objects mostly have their names in the order of the one before. So `seen` keeps, for each of the first members, the
    name that was there last (its token), its set and its index, and an equal name is not looked up.
    """
    for r in range(at.size):
        o = at[r]
        if o < 0 or tokens.kind[U(o)] != OBJECT:
            continue
        t, end, k = o + 1, tokens.after[U(o)], 0
        while t < end:
            start, size = tokens.start[U(t)], tokens.size[U(t)]
            last = seen[U(0), U(k)]
            if (
                last >= 0
                and tokens.size[U(last)] == size
                and seen[U(1), U(k)] == group[r]
                and same(data, tokens.start[U(last)], data, start, size)
            ):
                index = np.int64(seen[U(2), U(k)])
            else:
                index = np.int64(look_up(names, group[r], data, start, size))
                seen[U(0), U(k)], seen[U(1), U(k)], seen[U(2), U(k)] = t, group[r], index
            if index >= 0:
                indexes[U(index), U(r)] = t + 1
            t = tokens.after[U(t + 1)]
            if k + 1 < seen.shape[1]:
                k += 1


@kernel
def count_items(tokens: Tokens, at: Array, offsets: Array) -> Any:
    """Fill the offsets of the items of each array; how many there are."""
    count = 0
    for r in range(at.size):
        offsets[r] = count
        o = at[r]
        if o >= 0 and tokens.kind[U(o)] == ARRAY:
            t, end = o + 1, tokens.after[U(o)]
            while t < end:
                count += 1
                t = tokens.after[U(t)]
    offsets[at.size] = count
    return count


@kernel
def list_items(tokens: Tokens, at: Array, items: Array) -> None:
    count = 0
    for r in range(at.size):
        o = at[r]
        if o >= 0 and tokens.kind[U(o)] == ARRAY:
            t, end = o + 1, tokens.after[U(o)]
            while t < end:
                items[U(count)] = t
                count += 1
                t = tokens.after[U(t)]


@kernel
def count_members(tokens: Tokens, at: Array, over: Array) -> Any:
    """(How many members two columns of objects can have at most, and how many one row.)"""
    count, largest = 0, 0
    for r in range(at.size):
        here = 0
        if at[r] >= 0 and tokens.kind[U(at[r])] == OBJECT:
            here += (tokens.after[U(at[r])] - at[r]) // 2
        if over[r] >= 0 and tokens.kind[U(over[r])] == OBJECT:
            here += (tokens.after[U(over[r])] - over[r]) // 2
        count += here
        if here > largest:
            largest = here
    return count, largest


@kernel
def list_members(
    data: Array, tokens: Tokens, at: Array, over: Array, seen: Array, offsets: Array, names: Array, values: Array
) -> Any:
    """Fill the members of each object and of the one that is laid over it; how many there are.

    `seen` is a hash table that never needs to be emptied: what it holds says which row it is of.
    """
    count = 0
    for r in range(at.size):
        offsets[r] = count
        count = _add_members(data, tokens, at[r], r, seen, offsets[r], count, names, values)
        count = _add_members(data, tokens, over[r], r, seen, offsets[r], count, names, values)
    offsets[at.size] = count
    return count


@kernel
def _add_members(
    data: Array, tokens: Tokens, o: Any, r: Any, seen: Array, first: Any, count: Any, names: Array, values: Array
) -> Any:
    if o < 0 or tokens.kind[U(o)] != OBJECT:
        return count
    mask = U(seen.size - 1)
    t, end = o + 1, tokens.after[U(o)]
    while t < end:
        start, size = tokens.start[U(t)], tokens.size[U(t)]
        i = hashed(data, start, size, 0) & mask
        while True:
            entry = seen[i]
            if entry >> 32 != r + 1:
                seen[i] = (np.int64(r + 1) << 32) | np.int64(count - first)
                names[U(count)] = t
                values[U(count)] = t + 1
                count += 1
                break
            k = first + (entry & 0xFFFFFFFF)
            other = names[U(k)]
            if tokens.size[U(other)] == size and same(data, tokens.start[U(other)], data, start, size):
                values[U(k)] = t + 1
                break
            i = (i + U(1)) & mask
        t = tokens.after[U(t + 1)]
    return count


@kernel
def group(data: Array, tokens: Tokens, at: Array, slots: Array, of: Array, first: Array) -> Any:
    """Number rows by what stands in all lines of a matrix of indexes; how many different ones there are."""
    count = 0
    mask = U(slots.size - 1)
    for r in range(at.shape[1]):
        h = U(0)
        for line in range(at.shape[0]):
            o = at[U(line), U(r)]
            if o >= 0:
                h = hashed(data, tokens.start[U(o)], tokens.size[U(o)], h + U(tokens.kind[U(o)]))
            else:
                h = h * U(31) + U(1)
        i = h & mask
        while True:
            k = slots[i]
            if k < 0:
                slots[i] = count
                first[U(count)] = r
                of[U(r)] = count
                count += 1
                break
            if _are_alike(data, tokens, at, first[U(k)], r):
                of[U(r)] = k
                break
            i = (i + U(1)) & mask
    return count


@kernel
def _are_alike(data: Array, tokens: Tokens, at: Array, a: Any, b: Any) -> Any:
    for line in range(at.shape[0]):
        o, p = at[U(line), U(a)], at[U(line), U(b)]
        if o < 0 or p < 0:
            if o >= 0 or p >= 0:
                return False
            continue
        size = tokens.size[U(o)]
        if tokens.kind[U(o)] != tokens.kind[U(p)] or tokens.size[U(p)] != size:
            return False
        if not same(data, tokens.start[U(o)], data, tokens.start[U(p)], size):
            return False
    return True


@kernel
def count_fields(tokens: Tokens, at: Array, counts: Array) -> None:
    """Fill how many members each object has, as it stands; what is none has none."""
    for r in range(at.size):
        counts[r] = 0
        o = at[r]
        if o >= 0 and tokens.kind[U(o)] == OBJECT:
            t, end = o + 1, tokens.after[U(o)]
            while t < end:
                counts[r] += 1
                t = tokens.after[U(t + 1)]


@kernel
def among(data: Array, tokens: Tokens, at: Array, texts: NameTable, is_among: Array) -> None:
    """Fill whether each index holds one of a few texts, as it stands in the message."""
    shortest = np.int64(2**31)
    for k in range(texts.size.size):
        shortest = min(shortest, np.int64(texts.size[k]))
    for r in range(at.size):
        t = at[r]
        if t < 0:
            continue
        size = tokens.size[U(t)]
        if size < shortest:
            continue
        for k in range(texts.size.size):
            if texts.size[k] == size and same(texts.data, texts.start[k], data, tokens.start[U(t)], size):
                is_among[r] = True
                break


@kernel
def nested(tokens: Tokens, at: Array) -> Any:
    """Whether one of these indexes holds an object or an array."""
    for r in range(at.size):
        t = at[r]
        if t >= 0 and (tokens.kind[U(t)] == OBJECT or tokens.kind[U(t)] == ARRAY):
            return True
    return False


@kernel
def measure_texts(tokens: Tokens, at: Array) -> Any:
    """How many bytes the texts of these indexes have at most."""
    total = 0
    for r in range(at.size):
        o = at[r]
        if o >= 0 and tokens.kind[U(o)] != NULL:
            total += tokens.size[U(o)]
    return total


@kernel
def write_texts(data: Array, tokens: Tokens, at: Array, offsets: Array, out: Array, valid: Array) -> Any:
    """Write the texts of these indexes; how many are null."""
    o, nulls = 0, 0
    for r in range(at.size):
        offsets[r] = o
        t = at[r]
        kind = NULL if t < 0 else tokens.kind[U(t)]
        if kind == NULL:
            nulls += 1
            continue
        if kind == ESCAPED or kind == ESCAPED_NAME:
            o = put_unescaped(out, o, data, tokens.start[U(t)], tokens.size[U(t)])
        else:
            o = copy(out, o, data, tokens.start[U(t)], tokens.size[U(t)])
        set_bit(valid, r)
    offsets[at.size] = o
    return nulls
