"""Times and transaction blocks of Debezium's envelopes, as Spark SQL."""

from __future__ import annotations

_OPERATIONS = ("r", "c", "u", "d", "t", "m")
UNKNOWN_OPERATION_REASON = f"The operation is none of {', '.join(_OPERATIONS)}."
# Years 1 to 9999, in microseconds: what every reader of a timestamp can hold.
_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999


def moment(micros: str) -> str:
    """Spark SQL for an instant from microseconds since 1970; null beyond the years 1 to 9999."""
    return f"if({micros} between {_EARLIEST}L and {_LATEST}L, timestamp_micros({micros}), null)"


def of_milliseconds(millis: str) -> str:
    """The same from milliseconds."""
    return f"if({millis} between {_EARLIEST // 1000}L and {_LATEST // 1000}L, timestamp_millis({millis}), null)"


def known_transaction(block: str) -> str:
    """Spark SQL for a transaction block; an order of 0, which no change has, is one that the writer did not know."""
    orders = ", ".join(f"'{name}', nullif({block}.{name}, 0L)" for name in ("total_order", "data_collection_order"))
    return f"if({block}.total_order = 0, named_struct('id', {block}.id, {orders}), {block})"
