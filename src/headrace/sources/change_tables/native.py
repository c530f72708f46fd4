"""What the source needs to know of a column's declared type, whatever the server."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from headrace.changes.types import LogicalType


class NativeType(Protocol):
    """A column's declared type as a server's catalog has it; immutable, and compared by value."""

    @property
    def name(self) -> str:
        """The base type's name."""

    @property
    def logical(self) -> LogicalType:
        """What the values mean."""

    @property
    def large(self) -> bool:
        """Whether a change table may leave a value out that an update did not change."""

    @property
    def length(self) -> int | None:
        """How many characters, bytes or digits a value has at the most."""

    @property
    def width(self) -> int:
        """About how many bytes a value takes at the most; of a large one what it often takes."""

    @property
    def declaration(self) -> str:
        """The type as SQL writes it."""

    @property
    def marker(self) -> str:
        """The parameter for a bound value, of the column's own type."""

    def projection(self, expression: str) -> str:
        """How an expression of this type is selected."""

    def bound(self, text: str) -> object:
        """A canonical text as the parameter of `marker`."""

    def texts(self, values: pa.Array) -> pa.Array:
        """Canonical text of a fetched column.

        Raises:
            ValueError: what was fetched is not what the type is fetched as.
        """

    def to_json(self) -> list[Any]:
        """What `Dialect.native` makes the type of again."""


class NativeTypes(Protocol):
    """Knows a server's declared types."""

    def native(self, *parts: Any) -> NativeType:
        """A type out of its JSON form."""
