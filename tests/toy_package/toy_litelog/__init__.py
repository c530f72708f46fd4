"""A source of a real database: SQLite, with a log that triggers write, snapshots, signals and health."""

from toy_litelog.source import LitelogSource

__all__ = ["LitelogSource"]
