"""Which character each sequence of bytes is, as a server's own CONVERT has it, for all character sets.

`python -m headrace_emulators.mysql.charset_tables FILE` asks a MariaDB and a MySQL, and writes the tables that
`headrace.sources.mysql.charsets` reads. A sequence that both take has one meaning; one that only one of them takes has
that one's.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlServer

NO_CHARACTER = 0xFFFD
"""What stands for a sequence that is a character of the set and that the server shows as `?`."""
WITHOUT_TABLES = frozenset(
    ("ascii", "binary", "gb18030", "ucs2", "utf16", "utf16le", "utf32", "utf8", "utf8mb3", "utf8mb4")
)
"""Those whose characters follow from their numbers; of gb18030 `charsets` knows what differs from Python's."""
_NUMBERS = "headrace_numbers"
_ASK = """
SELECT HEX(b), HEX(CONVERT(CONVERT(b USING {charset}) USING utf32)) FROM (SELECT {bytes} AS b FROM {numbers}) q
WHERE HEX(CONVERT(b USING {charset})) = HEX(b) AND CHAR_LENGTH(CONVERT(b USING {charset})) = 1
"""
_SEQUENCES = {
    1: ["UNHEX(LPAD(HEX(n), 2, '0'))"],
    2: ["UNHEX(LPAD(HEX(n), 4, '0'))"],
    # Of those of three bytes each begins with the same one.
    3: ["UNHEX(LPAD(HEX(n), 4, '0'))", "CONCAT(x'8F', UNHEX(LPAD(HEX(n), 4, '0')))"],
}


def prepare(cursor: Any) -> None:
    """Make what `characters` asks with: a temporary table of numbers."""
    cursor.execute("SET sql_mode = ''")
    cursor.execute(f"CREATE TEMPORARY TABLE {_NUMBERS} (n INT UNSIGNED PRIMARY KEY)")
    cursor.execute(f"INSERT INTO {_NUMBERS} VALUES (0)")
    for bit in range(16):
        # A statement can't read a temporary table that it writes.
        cursor.execute(f"CREATE TEMPORARY TABLE more_numbers SELECT n + {1 << bit} AS n FROM {_NUMBERS}")
        cursor.execute(f"INSERT INTO {_NUMBERS} SELECT n FROM more_numbers")
        cursor.execute("DROP TEMPORARY TABLE more_numbers")


def charsets(cursor: Any) -> dict[str, int]:
    """The character sets that have tables, with the size of the longest character."""
    cursor.execute("SHOW CHARACTER SET")
    return {str(row[0]): int(row[3]) for row in cursor.fetchall() if row[0] not in WITHOUT_TABLES}


def characters(cursor: Any, charset: str, size: int) -> dict[bytes, int]:
    """The sequences that are one character of a set, with its code point.

    Args:
        cursor: of a session in which `prepare` was run.
        charset: the set.
        size: of its longest character.
    """
    found: dict[bytes, int] = {}
    singles = f"(SELECT n FROM {_NUMBERS} WHERE n < 256) s"
    for part in [*_SEQUENCES[1], *(_SEQUENCES[size] if size > 1 else [])]:
        numbers = singles if part in _SEQUENCES[1] else _NUMBERS
        cursor.execute(_ASK.format(charset=charset, bytes=part, numbers=numbers))
        for sequence, shown in cursor.fetchall():
            data = bytes.fromhex(sequence)
            if len(shown) == 8:
                point = int(shown, 16)
                found[data] = NO_CHARACTER if point == ord("?") and data.strip(b"\0") != b"?" else point
    return found


def pairs(found: dict[bytes, int]) -> Any:
    """A table as the file has it: numbers of sequences and code points in order, each as the difference to the last."""
    numbers = sorted((int.from_bytes(data, "big"), point) for data, point in found.items())
    return np.diff(np.array(numbers, np.int32), axis=0, prepend=np.zeros((1, 2), np.int32))


def _write(path: Path) -> None:
    tables: dict[str, dict[bytes, int]] = {}
    for kind in (MARIADB, MYSQL):
        with tempfile.TemporaryDirectory(prefix="hr-") as folder, MySqlServer(Path(folder), kind) as server:
            print(f"{server.name} {server.version}")
            with server.connect() as connection, connection.cursor() as cursor:
                prepare(cursor)
                for charset, size in charsets(cursor).items():
                    table = tables.setdefault(charset, {})
                    for data, point in characters(cursor, charset, size).items():
                        if table.setdefault(data, point) != point:
                            raise SystemExit(f"The servers differ in {data.hex()} of {charset}.")
    np.savez_compressed(path, **{charset: pairs(table) for charset, table in sorted(tables.items())})
    print(f"{path}: {len(tables)} character sets, {path.stat().st_size} bytes")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
