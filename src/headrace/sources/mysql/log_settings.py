"""Whether a server logs what capture needs: its settings, each with the statement that mends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.permissions import MissingPermission
from headrace.sources.mysql.connection import ServerKind

NAMES = (
    "log_bin", "server_id", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_storage_engine",
    "gtid_mode", "gtid_strict_mode", "binlog_expire_logs_seconds", "expire_logs_days", "log_replica_updates",
    "log_slave_updates", "innodb_native_foreign_keys", "sync_binlog", "innodb_flush_log_at_trx_commit",
)  # fmt: skip
"""The settings that are looked at."""
_DAY = 86_400
_ON = ("1", "ON")


def retention_seconds(settings: Mapping[str, str]) -> float | None:
    """How long the server keeps a file of its log; None for ever.

    Args:
        settings: those of `NAMES` that the server has.
    """
    seconds = float(settings.get("binlog_expire_logs_seconds") or 0)
    return seconds or float(settings.get("expire_logs_days") or 0) * _DAY or None


def wrong_settings(
    server: ServerKind, settings: Mapping[str, str], *, is_replica: bool = False
) -> Iterator[MissingPermission]:
    """What is set so that changes are missing from the log, or can't be read as well as they could be.

    Args:
        server: what the server is.
        settings: those of `NAMES` that it has; a setting that is not there is not looked at.
        is_replica: whether it gets changes from another server.
    """

    def differs(name: str, *wanted: str) -> bool:
        return name in settings and settings[name].upper() not in wanted

    def wrong(
        name: str, value: str, meaning: str, *, required: bool = True, restart: bool = False
    ) -> MissingPermission:
        return MissingPermission(
            f"{name} of the server is {settings[name] or 'empty'}{meaning}.",
            # Once it is restarted for its log, what was set while it ran is forgotten.
            f"Write {name}={value} into the server's option file, too."
            if is_off and name != "log_bin"
            else _in_file(name, value)
            if restart
            else _set(server, name, value),
            required,
        )

    is_off = differs("log_bin", *_ON)
    if is_off:
        yield wrong("log_bin", "binlog", ": it writes no binary log", restart=True)
    if settings.get("server_id") == "0":
        yield wrong("server_id", "1", ", with which it serves no readers of its log")
    if differs("binlog_format", "ROW"):
        yield wrong("binlog_format", "ROW", ": changes are logged as statements, which can't be read as rows")
    if differs("binlog_storage_engine", ""):
        yield wrong("binlog_storage_engine", "", ", a form of the log that is not read", restart=True)
    if differs("binlog_row_image", "FULL"):
        yield wrong(
            "binlog_row_image",
            "FULL",
            ": changes lack columns, deletes have the key alone, and with MINIMAL inserts have the columns alone that "
            "their statement names, so that a mirror stops",
            required=False,
        )
    if differs("binlog_row_metadata", "FULL"):
        yield wrong(
            "binlog_row_metadata",
            "FULL",
            ": the log does not name columns, so a changed table may stop the stream",
            required=False,
        )
    if not server.is_mariadb and differs("gtid_mode", "ON"):
        yield MissingPermission(
            f"gtid_mode of the server is {settings['gtid_mode']}: the stream can't follow a failover, and snapshots "
            "lock tables for a moment.",
            "Set enforce_gtid_consistency = ON, and step gtid_mode to OFF_PERMISSIVE, ON_PERMISSIVE and ON.",
            required=False,
        )
    if server.is_mariadb and differs("gtid_strict_mode", *_ON):
        yield wrong("gtid_strict_mode", "ON", ": the stream can't follow a failover", required=False)
    kept = retention_seconds(settings)
    if kept is not None and kept < _DAY:
        yield MissingPermission(
            f"The server keeps its log for {kept:,.0f} seconds (binlog_expire_logs_seconds): a pipeline that rests "
            "longer loses changes.",
            _set(server, "binlog_expire_logs_seconds", str(7 * _DAY)),
            required=False,
        )
    updates = "log_slave_updates" if server.is_mariadb else "log_replica_updates"
    if is_replica and differs(updates, *_ON):
        yield wrong(updates, "ON", ", so a replica does not log what it gets", restart=True)
    if "innodb_native_foreign_keys" in settings and not differs("innodb_native_foreign_keys", *_ON):
        yield wrong(
            "innodb_native_foreign_keys",
            "OFF",
            ": rows that a foreign key changes by CASCADE or SET NULL are not logged",
            required=False,
            restart=True,
        )
    for name in ("sync_binlog", "innodb_flush_log_at_trx_commit"):
        if differs(name, "1"):
            yield wrong(name, "1", ": after a crash the log may lack what was read from it already", required=False)


def _set(server: ServerKind, name: str, value: str) -> str:
    if server.is_mariadb or server.version < (8, 0):
        return f"Run: SET GLOBAL {name} = {value}; and write it into the server's option file."
    return f"Run: SET PERSIST {name} = {value};"


def _in_file(name: str, value: str) -> str:
    return (
        f"Write {name}={value} into the server's option file and restart it; on RDS set it in the parameter group, "
        "where automated backups switch the log on."
    )
