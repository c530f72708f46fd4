"""Db2 with SQL Replication, emulated on SQLite: a server is a directory, a database a file in it.

Readers reach it as a driver, `headrace_emulators.db2.driver:connect`, and send it the SQL that a real server gets.
Demos and tests control it from here: they make databases, write to them, and decide when the Capture program runs.
"""

from __future__ import annotations

from headrace_emulators.db2.capture import CaptureProgram
from headrace_emulators.db2.driver import connect
from headrace_emulators.db2.server import EmulatedDb2, EmulatedDb2Database

__all__ = ["CaptureProgram", "EmulatedDb2", "EmulatedDb2Database", "connect"]
