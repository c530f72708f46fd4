"""Reading the bytes of one event of the binary log, each bound checked."""

from __future__ import annotations

from headrace.errors import FormatError

_WIDTHS = {252: 2, 253: 3, 254: 8}
_ONE_BYTE = 251


class EventBytes:
    """What is left of an event's body, or of a part of one. Numbers are little-endian.

    Args:
        data: the bytes.
        name: what the event is called in errors.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        self._position, self._end = 0, len(data)

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self._end - self._position

    def number(self, size: int) -> int:
        """An unsigned number of so many bytes."""
        return int.from_bytes(self.take(size), "little")

    def big_endian(self, size: int) -> int:
        """An unsigned number of so many bytes, the highest one first."""
        return int.from_bytes(self.take(size), "big")

    def packed(self) -> int:
        """A number that says by its first byte how many follow."""
        first = self.number(1)
        if first < _ONE_BYTE:
            return first
        width = _WIDTHS.get(first)
        if width is None:
            raise self.wrong(f"has a length that begins with {first}")
        return self.number(width)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self._position + size
        if size < 0 or end > self._end:
            raise self.wrong("is shorter than its parts")
        found = self._data[self._position : end]
        self._position = end
        return found

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left)

    def short_text(self) -> bytes:
        """Bytes behind one byte with their number."""
        return self.take(self.number(1))

    def packed_text(self) -> bytes:
        """Bytes after their packed number."""
        return self.take(self.packed())

    def name(self) -> str:
        """A name in UTF-8 behind one byte with its length."""
        return self.utf8(self.short_text())

    def name_and_zero(self) -> str:
        """The same with a zero byte after it."""
        found = self.name()
        if self.number(1):
            raise self.wrong("has a name without an end")
        return found

    def utf8(self, data: bytes) -> str:
        """A text of bytes that are UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.wrong("has a name that is not UTF-8") from None

    def part(self, size: int) -> EventBytes:
        """The next bytes, to be read on their own."""
        return EventBytes(self.take(size), self._name)

    def finish(self) -> None:
        """See that nothing is left.

        Raises:
            FormatError: something is.
        """
        if self.left:
            raise self.wrong("is longer than its parts")

    def wrong(self, what: str) -> FormatError:
        """The error of an event that is not as it should be; who reads the log adds file and position."""
        return FormatError(f"The {self._name} event {what}.")
