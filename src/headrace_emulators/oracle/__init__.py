"""Oracle with its redo log and LogMiner, emulated on SQLite: a server is a folder, a database a file in it.

Readers reach it as a driver, `headrace_emulators.oracle.driver:connect`, and send it the SQL that a real server gets.
Demos and tests control it from here: they make databases, change them, switch logs and lose them.
"""

from __future__ import annotations

from headrace_emulators.oracle.driver import Connection, connect
from headrace_emulators.oracle.server import EmulatedOracle

__all__ = ["Connection", "EmulatedOracle", "connect"]
