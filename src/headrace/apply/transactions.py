"""What a change row says of the transaction that it is of, and of a change of its key; Spark SQL over one row.

A batch of messages may end inside a transaction. So that the next batch knows what the first part of the transaction
did to a row, a position says the transaction where the source may check keys only at its end (`origin_of`):

| position | of |
|---|---|
| `00000000000000000007/1/m0d4a1185@1a2b3c4d` | a row that came to its key from another one, in transaction `0d4a1185` |
| `00000000000000000007/1/u0d4a1185@1a2b3c4d` | a row that was changed at its key |
| `00000000000000000007/1/c0d4a1185@1a2b3c4d` | a row that is new |
"""

from __future__ import annotations

from headrace.changes.typed import literal

FROM_MESSAGE = "(message.topic is not null)"
KEY_HEADERS = ("__debezium.newkey", "__debezium.oldkey")
IS_MOVED_PAIR = f"(op in ('c', 'd') and coalesce(exists(message.headers, h -> h.key in {KEY_HEADERS}), false))"
"""A delete or a create that is one half of a change of key, as Debezium's headers say."""

WHOLE_DELETERS = ("oracle", "db2", "informix")
"""Connectors that need the whole row in the log."""
WHOLE_DELETES = f"{FROM_MESSAGE} and coalesce(source['connector'] in {WHOLE_DELETERS}, false)"

_BY_IMAGES = (
    "op = 'u' and before is not null and after is not null and (key is null or exists(map_keys(key), "
    "k -> map_contains_key(before, k) and map_contains_key(after, k) and not before[k] <=> after[k]))"
)
# The key map of an update says either image's key; a difference from the other image is a key change as well.
_BY_KEY = (
    "op = 'u' and key is not null and exists(map_keys(key), k -> "
    "(map_contains_key(before, k) and not before[k] <=> key[k]) "
    "or (map_contains_key(after, k) and not after[k] <=> key[k]))"
)
KEY_CHANGED = f"(coalesce({_BY_IMAGES}, false) or coalesce({_BY_KEY}, false))"
"""An update that may carry the row to another key."""

CHECKS_EACH_ROW = "coalesce(source['connector'] in ('mysql', 'mariadb', 'postgresql'), false)"
"""A PostgreSQL key that is checked later is not a replica identity: then images before are whole."""

TRANSACTION_IDS = ("txId", "commit_lsn", None, "gtid", "csn")
"""Where a change row says its transaction, the first one that is there: in `source`, or in `transaction` itself."""
TRANSACTION = "coalesce({})".format(
    ", ".join("transaction.id" if name is None else f"source[{literal(name)}]" for name in TRANSACTION_IDS)
)
"""Debezium's PostgreSQL messages have the LSN of each change in `transaction.id`, after the transaction's number."""

CAME, MOVED, CHANGED = "c", "m", "u"
NEVER_SHARED = ("mysql", "mariadb", "sqlserver")
"""Connectors of logs in which no two rows have one key."""

MAY_BE_CUT = (
    f"({FROM_MESSAGE} and not coalesce(source['connector'] in ({', '.join(map(literal, NEVER_SHARED))}), false) "
    f"and {TRANSACTION} is not null)"
)
"""Whether a batch may end between a change that brings a row to a key and one that takes another row away from it."""

_NUMBER = f"lower(lpad(hex(crc32({TRANSACTION})), 8, '0'))"
_ORIGIN = f"'([{CAME}{MOVED}{CHANGED}])([0-9a-f]{{8}})@[^@]*$'"


def origin_of() -> str:
    """Spark SQL for what a position says of its row and transaction; empty where it says nothing."""
    kind = f"case when op = 'c' then if({IS_MOVED_PAIR}, '{MOVED}', '{CAME}') "
    kind += f"when {KEY_CHANGED} then '{MOVED}' else '{CHANGED}' end"
    return f"if(op in ('c', 'u') and {MAY_BE_CUT}, concat({kind}, {_NUMBER}), '')"


def origin_in(position: str) -> str:
    """Spark SQL for how the row of a position came about: `CAME`, `MOVED` or `CHANGED`; empty where it does not say."""
    return f"regexp_extract({position}, {_ORIGIN}, 1)"


def is_of_transaction(position: str) -> str:
    """Spark SQL: was the row of a position made by the transaction of a change row?"""
    return f"coalesce(regexp_extract({position}, {_ORIGIN}, 2) = {_NUMBER}, false)"


AT_KEY_NAME = "headrace.at_key"
AT_KEY = f"source[{literal(AT_KEY_NAME)}]"
"""Of a row that is put before the changes of its key: how its transaction brought it there in an earlier batch, or
`BEFORE` or `FREE`; else null.
"""
BEFORE, FREE = "before", "free"
"""Another row is there, or none."""
