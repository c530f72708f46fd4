"""The source blocks of Debezium's connectors, as the fast way reads them: typed fields, and `source` made of them.

A block of another connector is read as a map of texts, field by field, whatever it holds.

Source: spec/format_debezium.md; the connectors' documentation, generations 1 to 3.
"""

from __future__ import annotations

from headrace.changes.typed import literal, quote

_NUMBERS = frozenset(
    ("ts_ms", "ts_us", "ts_ns", "event_serial_no", "server_id", "pos", "row", "thread", "txId", "lsn", "xmin", "ssn",
     "redo_thread")
)  # fmt: skip
_EVERYWHERE = ("version", "connector", "name")
_OWN = ("ts_ms", "ts_us", "snapshot", "db", "schema", "table")
# The facts that each connector always gives in a change, and those that it may give.
_FACTS = {
    "sqlserver": (("change_lsn", "commit_lsn", "event_serial_no"), ("sequence",)),
    "db2": (("change_lsn", "commit_lsn"), ("sequence",)),
    "postgresql": (("sequence", "txId", "lsn"), ("xmin",)),
    "mysql": (("server_id", "file", "pos", "row"), ("sequence", "gtid", "thread", "query")),
    "mariadb": (("server_id", "file", "pos", "row"), ("sequence", "gtid", "thread", "query")),
    "oracle": (("txId", "scn", "commit_scn", "rs_id", "ssn", "redo_thread", "user_name"),
               ("sequence", "lcr_position", "row_id", "redo_sql", "start_scn", "commit_ts_ms", "start_ts_ms")),
}  # fmt: skip
# Oracle's transaction id is a text, PostgreSQL's a number: both are read as texts.
_TEXTS_OF_NUMBERS = frozenset(("txId",))


def _fields() -> dict[str, str]:
    names = [*_EVERYWHERE, *_OWN]
    for always, sometimes in _FACTS.values():
        names += [*always, *sometimes]
    return {
        name: "bigint" if name in _NUMBERS and name not in _TEXTS_OF_NUMBERS else "string"
        for name in dict.fromkeys(names)
    }


FIELDS = _fields()
"""The fields of all blocks and the Spark types that they are read as."""

BLOCK_DDL = f"struct<{','.join(f'{quote(name)}:{kind}' for name, kind in FIELDS.items())}>"
"""The Spark type of a block."""


def known_connector(block: str) -> str:
    """Spark SQL: whether the block is one of these connectors'."""
    return f"{block}.connector in ({', '.join(map(literal, _FACTS))})"


def texts_of(block: str) -> list[str]:
    """Spark SQL for the block's texts."""
    return [f"{block}.{quote(name)}" for name, kind in FIELDS.items() if kind == "string"]


def facts(block: str) -> str:
    """Spark SQL for `source` of a change row: the block's facts as texts, without those that are null."""
    branches = []
    connectors: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for connector, found in _FACTS.items():
        connectors.setdefault(found, []).append(connector)
    for (always, sometimes), names in connectors.items():
        of = f"{block}.connector in ({', '.join(map(literal, names))})"
        given = " and ".join(f"{block}.{quote(name)} is not null" for name in (*_EVERYWHERE, *always))
        without = " and ".join(f"{block}.{quote(name)} is null" for name in sometimes)
        branches.append(f"when {of} and {given} and {without} then {_map(block, (*_EVERYWHERE, *always))}")
        every = _map(block, (*_EVERYWHERE, *always, *sometimes))
        branches.append(f"when {of} then map_filter({every}, (k, x) -> x is not null)")
    return f"case {' '.join(branches)} end"


def _map(block: str, names: tuple[str, ...]) -> str:
    pairs = ", ".join(f"{literal(name)}, cast({block}.{quote(name)} as string)" for name in names)
    return f"map({pairs})"
