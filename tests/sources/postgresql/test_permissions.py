"""What a role lacks in PostgreSQL is found before a run, each with the statement that mends it; after these statements
nothing is missing.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import yaml
from tests.support.postgresql import PostgresDatabase, needs_postgres, postgres, require_release, settings_of

from headrace.errors import CaptureError
from headrace.permissions import MissingPermission
from headrace.pipeline.check import Finding, Verdict, check_file
from headrace.sources.postgresql.checks import SERVICES, missing_permissions
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.table_set import TableSet

_roles = itertools.count(1)


@pytest.fixture
def role(postgres_database: PostgresDatabase) -> str:
    """A role that may only log in."""
    name = f"role {next(_roles)}"
    with postgres_database.server.connect("postgres") as connection:
        connection.execute(f'DROP ROLE IF EXISTS "{name}"')
        connection.execute(f'CREATE ROLE "{name}" LOGIN')
    return name


def missing(database: PostgresDatabase, role: str, **options: str) -> dict[str, MissingPermission]:
    found = missing_permissions(settings_of(database, user=role, **options))
    return {each.sentence: each for each in found}


def test_each_lacking_right_comes_with_the_statement_that_grants_it(
    postgres_database: PostgresDatabase, role: str
) -> None:
    postgres_database.execute(
        'CREATE SCHEMA "in"; CREATE TABLE "in".a (id int PRIMARY KEY); CREATE TABLE public.b (id int PRIMARY KEY);'
        "CREATE TABLE signals (id text PRIMARY KEY, type text, data text);"
        "ALTER TABLE b ENABLE ROW LEVEL SECURITY; CREATE POLICY mine ON b USING (false);"
        f'CREATE PUBLICATION {postgres_database.name} FOR TABLE "in".a, b, signals;'
    )
    options = {"signal_data_collection": "public.signals"}
    found = missing(postgres_database, role, **options)
    assert {sentence: each.required for sentence, each in found.items()} == {
        "The login lacks the permission REPLICATION (to make, read and advance the slot).": True,
        "The login lacks the permission USAGE on schema 'in' (snapshots of its tables).": True,
        "The login lacks the permission SELECT on tables 'in.a', 'public.b', 'public.signals' (their snapshots).": True,
        "The login lacks the permission INSERT on public.signals (headrace signal).": False,
        "The login lacks the permission pg_monitor (to name the transaction that holds up a snapshot or the slot).": (
            False
        ),
    }
    for _ in range(2):
        # Whether policies hide rows is seen by who may read.
        for each in missing(postgres_database, role, **options).values():
            assert f'"{role}"' in each.remedy
            postgres_database.execute(each.remedy.removeprefix("Run: "))
    assert missing(postgres_database, role, **options) == {}


def test_policies_that_hide_rows_are_found(postgres_database: PostgresDatabase, role: str) -> None:
    postgres_database.execute(
        "CREATE TABLE b (id int PRIMARY KEY); ALTER TABLE b ENABLE ROW LEVEL SECURITY;"
        f'GRANT SELECT ON b TO "{role}"; CREATE PUBLICATION {postgres_database.name} FOR TABLE b'
    )
    sentence = "The login lacks the permission BYPASSRLS (policies hide rows of table 'public.b' from snapshots)."
    assert missing(postgres_database, role)[sentence].remedy == f'Run: ALTER ROLE "{role}" BYPASSRLS;'
    assert sentence not in missing(postgres_database, role, snapshot_mode="no_data")


def test_what_it_takes_to_make_the_publication_is_said_before(postgres_database: PostgresDatabase, role: str) -> None:
    name = postgres_database.name
    postgres_database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE keyless (id int)")
    found = missing(postgres_database, role, snapshot_mode="no_data")
    assert [sentence for sentence, each in found.items() if each.required] == [
        "The login lacks the permission REPLICATION (to make, read and advance the slot).",
        "Table 'public.keyless' has no primary key and no other replica identity, so once changes are published the "
        "server refuses the application's updates and deletes of it.",
        f"The login lacks the permission CREATE on database '{name}' (to make publication '{name}').",
        "The login does not own tables 'public.a', 'public.keyless', which only the owner adds to a publication.",
    ]


@pytest.mark.parametrize("created", ["disabled", "filtered"])
def test_one_check_finds_all_that_is_wrong_and_what_it_says_makes_all_of_it_right(
    postgres_database: PostgresDatabase, role: str, tmp_path: Path, created: str
) -> None:
    database = postgres_database
    tables = [f"table_{number}" for number in range(12)]
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int, v int{', PRIMARY KEY (id)' if table > 'table_3' else ''})")
    source = {
        "type": "postgresql",
        **database.options,
        "user": role,
        "publication": "shop",
        "slot": database.name,
        "publication_autocreate": created,
        "tables": [f"public.{table}" for table in [*tables, "tabel_1", "tabel_2"]],
    }
    file = tmp_path / "pipeline.yaml"

    def wrong() -> list[Finding]:
        sink = {"type": "files", "path": str(tmp_path / "out"), "format": {"type": "canal_json"}}
        named = {"name": "shop", "checkpoint": str(tmp_path / "checkpoint")}
        file.write_text(yaml.safe_dump({"pipeline": named, "source": source, "sinks": [sink]}))
        return [finding for finding in check_file(file).findings if finding.verdict is Verdict.WRONG]

    found = wrong()
    absent = [one for one in found if " has no table " in one.sentence]
    assert [one.sentence.split("table ")[1] for one in absent] == ["'public.tabel_1'.", "'public.tabel_2'."]
    granted = [one for one in found if one not in absent]
    assert len(granted) <= 6, [one.sentence for one in granted]
    for one in granted:
        statement = one.remedy.split("Run: " if "Run: " in one.remedy else "run: ")[1]
        database.execute(re.split(r" (?:or|and) ", statement)[0])
    source["tables"] = [f"public.{table}" for table in tables]
    source["publication_autocreate"] = "disabled"
    assert wrong() == []


def test_slot_and_publication_of_another_kind_are_said_before(postgres_database: PostgresDatabase) -> None:
    require_release(postgres_database, 15, "publications leave out rows")
    name = postgres_database.name
    postgres_database.execute(
        f"CREATE TABLE a (id int PRIMARY KEY); CREATE PUBLICATION {name} FOR TABLE a WHERE (id > 5)"
    )
    postgres_database.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'test_decoding')")
    assert list(missing(postgres_database, "cdc")) == [
        f"Replication slot '{name}' belongs to the output plugin 'test_decoding', so it can't be read here.",
        f"Publication '{name}' leaves out rows of table 'public.a': it has those WHERE (id > 5).",
    ]


@pytest.mark.parametrize(
    ("setting", "service", "remedy"),
    [
        ("rds.logical_replication", "rds", 'Run: GRANT rds_replication TO "{role}";'),
        ("cloudsql.logical_decoding", "cloudsql", 'Run: ALTER USER "{role}" REPLICATION;'),
        ("azure.extensions", "azure", 'Run: ALTER ROLE "{role}" REPLICATION;'),
    ],
)
def test_a_managed_service_is_told_in_its_own_words(
    postgres_database: PostgresDatabase, role: str, setting: str, service: str, remedy: str
) -> None:
    assert service in SERVICES
    postgres_database.execute(f"CREATE TABLE a (id int PRIMARY KEY); CREATE PUBLICATION {postgres_database.name}")
    postgres_database.execute(f"ALTER DATABASE {postgres_database.name} SET {setting} = 'off'")
    found = missing(postgres_database, role, snapshot_mode="no_data")
    sentence = "The login lacks the permission REPLICATION (to make, read and advance the slot)."
    assert found[sentence].remedy == remedy.format(role=role)


@pytest.mark.slow
@needs_postgres
def test_a_server_that_is_not_set_up_is_said_before() -> None:
    with postgres(wal_level="replica", max_replication_slots="0", max_wal_senders="3") as server:
        database = server.new_database()
        database.execute("CREATE TABLE a (id int PRIMARY KEY)")
        found = missing(database, "cdc")
        assert {sentence: each.required for sentence, each in found.items()} == {
            "wal_level of the server is replica, not logical.": True,
            "0 of max_replication_slots are free, and up to 6 are used: for the slot, the look for new changes and "
            "'max_readers'.": True,
            "3 of max_wal_senders are free, and up to 6 are used: for the slot, the look for new changes and "
            "'max_readers'.": False,
        }
        for setting in ("wal_level = logical", "max_replication_slots = 20", "max_wal_senders = 20"):
            assert any(f"ALTER SYSTEM SET {setting};" in each.remedy for each in found.values())


IDENTITIES = {
    "CREATE TABLE t (a int, id int GENERATED ALWAYS AS (a + 1) STORED PRIMARY KEY)": "does not have a key of the table",
    "CREATE TABLE t (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p PARTITION OF t FOR VALUES FROM (1) TO (9);"
    "ALTER TABLE p ADD PRIMARY KEY (id)": "does not have a key of the table",
    "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL UNIQUE);ALTER TABLE t REPLICA IDENTITY USING INDEX t_v_key": "",
    "CREATE TABLE t (id int PRIMARY KEY, v int)": "",
    "CREATE TABLE t (id int, v int); ALTER TABLE t REPLICA IDENTITY FULL": "",
}


@pytest.mark.parametrize("definition", IDENTITIES)
@pytest.mark.parametrize("owned", [True, False])
def test_an_identity_that_does_not_say_the_key_is_found_before_the_first_update(
    postgres_database: PostgresDatabase, definition: str, owned: bool
) -> None:
    postgres_database.execute(definition)
    if not owned:
        options = "publish_via_partition_root = true"
        postgres_database.execute(f"CREATE PUBLICATION {postgres_database.name} FOR TABLE t WITH ({options})")
    said, settings = IDENTITIES[definition], settings_of(postgres_database)
    found = [each for each in missing_permissions(settings) if "identity" in each.sentence]
    tables = TableSet(settings)
    if said:
        assert [said in each.sentence for each in found] == [True]
        with connect(settings) as connection, pytest.raises(CaptureError, match=said):
            tables.publish(connection, tables.captured(connection, strict=True))
        assert postgres_database.execute("SELECT count(*) FROM pg_publication") == [(0 if owned else 1,)]
        postgres_database.execute(found[0].remedy.removeprefix("Run: ").partition(" Changes")[0])
    else:
        assert found == []
    with connect(settings) as connection:
        tables.publish(connection, tables.captured(connection, strict=True))
    assert [each for each in missing_permissions(settings) if "identity" in each.sentence] == []


def test_a_new_partition_without_an_identity_is_named(
    postgres_database: PostgresDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    postgres_database.execute(
        "CREATE TABLE t (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF t FOR VALUES FROM (1) TO "
        "(5); ALTER TABLE p1 REPLICA IDENTITY FULL"
    )
    settings = settings_of(postgres_database)
    tables = TableSet(settings)
    with connect(settings) as connection:
        known = tables.captured(connection, strict=True)
        tables.publish(connection, known)
        postgres_database.execute("CREATE TABLE p2 PARTITION OF t FOR VALUES FROM (5) TO (9)")
        sentence = "Table 'public.p2', a partition of 'public.t', is published and has no primary key"
        assert sentence not in caplog.text
        tables.publish(connection, tables.captured(connection, strict=True), known)
        assert sentence in caplog.text
    [found] = [each for each in missing_permissions(settings) if each.sentence.startswith(sentence)]
    postgres_database.execute(found.remedy.removeprefix("Run: "))
    postgres_database.execute("INSERT INTO t VALUES (6, 1); UPDATE t SET v = 2")
