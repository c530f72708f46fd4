"""Sets of names that the members of objects are looked up in, as data for kernels: one compile for all tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from headrace.wire.compiled import kernel
from headrace.wire.spans import Array, U, hashed, same


class NameTable(NamedTuple):
    """The names of several sets: each name's bytes, its set, its index there, and a hash table of them."""

    data: Array
    start: Array
    size: Array
    group: Array
    index: Array
    slots: Array


class Names:
    """Sets of names by number. A name is looked up in one of them, and gives its index there.

    Args:
        groups: the sets; each holds a name once.
    """

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self._groups = groups
        self.width = max((len(group) for group in groups), default=0)
        self.count = len(groups)

    @cached_property
    def table(self) -> NameTable:
        """What kernels take, made when it is first asked for: a process that only plans loads no kernel."""
        texts = [name.encode(errors="surrogatepass") for group in self._groups for name in group]
        sizes = np.array([len(text) for text in texts], np.int32)
        table = NameTable(
            as_data(b"".join(texts)),
            np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes)[:-1].astype(np.int32)])
            if texts
            else np.zeros(0, np.int32),
            sizes,
            np.array([number for number, group in enumerate(self._groups) for _ in group], np.int32),
            np.array([index for group in self._groups for index in range(len(group))], np.int32),
            np.full(1 << max(2, (2 * len(texts)).bit_length()), -1, np.int32),
        )
        _insert_all(table)
        return table


def as_data(text: bytes) -> Array:
    """Bytes as kernels take them: never writable, because that would be another type and compiled again."""
    return np.frombuffer(text + bytes(8), np.uint8)


@kernel
def look_up(names: NameTable, group: Any, data: Array, start: Any, size: Any) -> Any:
    """The index of a name in a set; -1 where the set has no such name."""
    mask = U(names.slots.size - 1)
    i = hashed(data, start, size, group) & mask
    while True:
        k = names.slots[i]
        if k < 0:
            return -1
        if (
            names.group[U(k)] == group
            and names.size[U(k)] == size
            and same(names.data, names.start[U(k)], data, start, size)
        ):
            return names.index[U(k)]
        i = (i + U(1)) & mask


@kernel
def _insert_all(names: NameTable) -> None:
    mask = U(names.slots.size - 1)
    for k in range(names.size.size):
        i = hashed(names.data, names.start[k], names.size[k], names.group[k]) & mask
        while names.slots[i] >= 0:
            i = (i + U(1)) & mask
        names.slots[i] = k
