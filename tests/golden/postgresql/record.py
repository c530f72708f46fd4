"""Records what a PostgreSQL server sends by pgoutput; see README.md."""

from __future__ import annotations

import json
import select
import struct
import sys
import time
from pathlib import Path

import psycopg
from psycopg import pq

HERE = Path(__file__).parent
DATABASE = "headrace_recording"
SETTINGS = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=1 -c bytea_output=hex "
    "-c lc_monetary=C -c search_path=public"
)
TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN amount AS numeric(10,2);
CREATE TABLE plain (id int PRIMARY KEY, name text, ok boolean, price numeric(10,2), at timestamp, big text);
ALTER TABLE plain ALTER big SET STORAGE EXTERNAL;
CREATE TABLE whole (id int PRIMARY KEY, name text, big text);
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE by_index (id int PRIMARY KEY, code varchar(20) NOT NULL, name text);
CREATE UNIQUE INDEX codes ON by_index (code);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX codes;
CREATE TABLE keyless (a int, b text);
CREATE TABLE typed (id int PRIMARY KEY, mood mood, paid amount, tags text[], raw bytea, zone timestamptz, ratio float8);
CREATE TABLE emptied (id int PRIMARY KEY);
CREATE TABLE emptied_too (id int PRIMARY KEY, of int REFERENCES emptied);
CREATE TABLE "Odd.Name" ("A ""b" int PRIMARY KEY, "é" text);
"""
STEPS = {
    "insert": [
        "INSERT INTO plain VALUES (1, 'one', true, 1.50, '2026-01-02 03:04:05', NULL), (2, NULL, NULL, NULL, NULL, '')"
    ],
    "text of several bytes": ["INSERT INTO plain (id, name) VALUES (3, E'é €😀 \"\\\\ \\n \\x01')"],
    "update": ["UPDATE plain SET name = 'uno' WHERE id = 1"],
    "large value": [
        "INSERT INTO plain (id, big) VALUES (4, repeat('x', 2100))",
        "UPDATE plain SET name = 'kept' WHERE id = 4",
        "UPDATE plain SET big = repeat('y', 2100) WHERE id = 4",
    ],
    "key": ["UPDATE plain SET id = 14 WHERE id = 4", "UPDATE plain SET id = 11, name = 'moved' WHERE id = 1"],
    "delete": ["DELETE FROM plain WHERE id IN (2, 3)"],
    "whole": [
        "INSERT INTO whole VALUES (1, 'one', repeat('x', 2100))",
        "UPDATE whole SET name = NULL",
        "UPDATE whole SET name = NULL",
        "UPDATE whole SET id = 2",
        "DELETE FROM whole",
    ],
    "index": [
        "INSERT INTO by_index VALUES (1, 'a', 'one')",
        "UPDATE by_index SET name = 'uno'",
        "UPDATE by_index SET code = 'b'",
        "DELETE FROM by_index",
    ],
    "keyless": ["INSERT INTO keyless VALUES (1, 'one'), (1, 'one')"],
    "types": [
        "INSERT INTO typed VALUES (1, 'sad', 12.5, '{a,NULL,\"b c\"}', '\\x00ff', '2026-01-02 03:04:05.6+02', 1e15), "
        "(2, NULL, NULL, NULL, NULL, 'infinity', 'NaN')",
    ],
    "odd names": ["INSERT INTO \"Odd.Name\" VALUES (1, 'é')"],
    "several tables": [
        "BEGIN",
        "INSERT INTO plain (id) VALUES (21)",
        "INSERT INTO whole (id) VALUES (21)",
        "INSERT INTO plain (id) VALUES (22)",
        "SAVEPOINT s",
        "INSERT INTO plain (id) VALUES (23)",
        "ROLLBACK TO s",
        "DELETE FROM whole WHERE id = 21",
        "COMMIT",
    ],
    "rolled back": ["BEGIN", "INSERT INTO plain (id) VALUES (99)", "ROLLBACK"],
    "truncate": [
        "INSERT INTO emptied VALUES (1)",
        "BEGIN",
        "TRUNCATE emptied CASCADE",
        "INSERT INTO emptied VALUES (2)",
        "COMMIT",
        "TRUNCATE emptied_too RESTART IDENTITY",
    ],
    "messages": [
        "SELECT pg_logical_emit_message(false, 'app', 'at once')",
        "BEGIN",
        "INSERT INTO plain (id) VALUES (31)",
        "SELECT pg_logical_emit_message(true, 'app', '\\x00ff'::bytea)",
        "SELECT pg_logical_emit_message(false, 'other', 'before')",
        "INSERT INTO plain (id) VALUES (32)",
        "COMMIT",
        "SELECT pg_logical_emit_message(true, 'headrace.signal', '{\"id\": \"1\"}')",
    ],
    "structure": [
        "BEGIN",
        "INSERT INTO plain (id, name) VALUES (41, 'before')",
        "ALTER TABLE plain ADD COLUMN more int",
        "ALTER TABLE plain RENAME COLUMN name TO called",
        "INSERT INTO plain (id, called, more) VALUES (42, 'after', 7)",
        "COMMIT",
        "ALTER TABLE plain DROP COLUMN price",
        "INSERT INTO plain (id) VALUES (43)",
        "ALTER TABLE plain RENAME TO renamed",
        "INSERT INTO renamed (id) VALUES (44)",
    ],
    "origin": [
        "SELECT pg_replication_origin_create('elsewhere')",
        "SELECT pg_replication_origin_session_setup('elsewhere')",
        "BEGIN",
        "SELECT pg_replication_origin_xact_setup('0/1234', '2026-01-02 03:04:05+00')",
        "INSERT INTO keyless VALUES (2, 'from elsewhere')",
        "COMMIT",
        "SELECT pg_replication_origin_session_reset()",
    ],
}
PREPARED = {
    "prepared": [
        "BEGIN", "INSERT INTO keyless VALUES (1, 'a')", "PREPARE TRANSACTION 'one'", "COMMIT PREPARED 'one'",
        "BEGIN", "INSERT INTO keyless VALUES (2, 'b')", "PREPARE TRANSACTION 'two'", "ROLLBACK PREPARED 'two'",
    ]
}  # fmt: skip
PARTS = {
    "parts": [
        "BEGIN", "SAVEPOINT s", "INSERT INTO keyless SELECT i, repeat('x', 100) FROM generate_series(1, 2000) i",
        "ROLLBACK TO s", "INSERT INTO keyless SELECT i, repeat('y', 100) FROM generate_series(1, 2000) i", "COMMIT",
    ]
}  # fmt: skip


def lsn(connection: psycopg.Connection) -> int:
    """Where the next record begins."""
    high, low = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()[0].split("/")
    return int(high, 16) << 32 | int(low, 16)


def received(dsn: str, slot: str, start: int, end: int, options: str) -> list[bytes]:
    """What the slot sends of a window."""
    session = pq.PGconn.connect(f"{dsn} dbname={DATABASE} replication=database options='{SETTINGS}'".encode())
    place = f"{start >> 32:X}/{start & 0xFFFFFFFF:X}"
    session.exec_(f"START_REPLICATION SLOT {slot} LOGICAL {place} (publication_names '\"p\"', {options})".encode())
    found: list[bytes] = []
    asked = 0.0
    while not (found and found[-1][:1] == b"k" and int.from_bytes(found[-1][1:9]) >= end):
        size, data = session.get_copy_data(1)
        if size > 0:
            found.append(bytes(data))
            continue
        if size < 0:
            raise SystemExit(session.get_result().error_message.decode())
        if time.monotonic() - asked > 0.5:
            session.put_copy_data(b"r" + struct.pack(">QQQqB", 0, 0, 0, 0, 1))
            session.flush()
            asked = time.monotonic()
        select.select([session.socket], [], [], 0.1)
        session.consume_input()
    session.finish()
    return found


def record(
    dsn: str,
    file: str,
    steps: dict[str, list[str]],
    options: str,
    *,
    two_phase: bool = False,
    one_of_each: bool = False,
) -> None:
    """Run the steps in a new database, and write what comes."""
    with psycopg.connect(f"{dsn} dbname=postgres", autocommit=True) as session:
        session.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        session.execute(f"CREATE DATABASE {DATABASE}")
    with psycopg.connect(f"{dsn} dbname={DATABASE}", autocommit=True, options=SETTINGS) as session:
        session.execute(TABLES)
        session.execute("CREATE PUBLICATION p FOR ALL TABLES")
        session.execute("SELECT pg_create_logical_replication_slot('r', 'pgoutput', false, %s)", (two_phase,))
        oids = session.execute(
            "SELECT relname, oid::bigint FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        ).fetchall()
        bounds = [lsn(session)]
        for statements in steps.values():
            for statement in statements:
                session.execute(statement)
            bounds.append(lsn(session))
        payloads = received(dsn, "r", bounds[0], bounds[-1], options)
        while session.execute("SELECT active FROM pg_replication_slots WHERE slot_name = 'r'").fetchone()[0]:
            time.sleep(0.01)
        session.execute("SELECT pg_drop_replication_slot('r')")
        session.execute("SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin")
    with psycopg.connect(f"{dsn} dbname=postgres", autocommit=True) as session:
        session.execute(f"DROP DATABASE {DATABASE}")
    if one_of_each:
        payloads = list({payload[:1] + payload[25:26]: payload for payload in reversed(payloads)}.values())[::-1]
    head = {"bounds": bounds, "steps": steps, "oids": dict(oids)}
    (HERE / file).write_text("".join(f"{line}\n" for line in [json.dumps(head), *(p.hex() for p in payloads)]))


if __name__ == "__main__":
    server = sys.argv[1]
    record(server, "changes.txt", STEPS, "proto_version '1', messages 'true'")
    record(server, "prepared.txt", PREPARED, "proto_version '1'", two_phase=True)
    record(server, "parts.txt", PARTS, "proto_version '2', streaming 'on'", one_of_each=True)
