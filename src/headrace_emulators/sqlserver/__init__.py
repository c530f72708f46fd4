"""SQL Server with change data capture, emulated on SQLite: a server is a directory, a database a file in it.

Readers reach it as a driver, `headrace_emulators.sqlserver.driver:connect`, and send it the T-SQL that a real server
gets.
Demos and tests control it from here: they make databases, write to them, and decide when capture runs.
"""

from __future__ import annotations

from headrace_emulators.engine.storage import QUERY_LOG
from headrace_emulators.sqlserver.capture import CaptureJob
from headrace_emulators.sqlserver.driver import connect, run_script
from headrace_emulators.sqlserver.server import EmulatedDatabase, EmulatedServer

__all__ = ["QUERY_LOG", "CaptureJob", "EmulatedDatabase", "EmulatedServer", "connect", "run_script"]
