"""The publication: made with the captured tables and altered only where it differs, if Headrace made it; otherwise used
as it is, or refused with the statement that mends it. It never stops the application's updates.
"""

from __future__ import annotations

import pytest
from tests.support.postgresql import PostgresDatabase, require_release, settings_of

from headrace.changes import TableId, TableSchema
from headrace.errors import CaptureError
from headrace.sources.postgresql import publication
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.connection import connect
from headrace.sources.postgresql.publication import PublicationState


def ensure(database: PostgresDatabase, *names: str, **options: str) -> None:
    settings = settings_of(database, **options)
    with connect(settings) as connection:
        publication.ensure(connection, settings, [table(database, name) for name in names])


def table(database: PostgresDatabase, name: str) -> PostgresTable:
    [(oid,)] = database.execute("SELECT %s::regclass::oid::bigint", (f'public."{name}"',))
    return PostgresTable(TableSchema(TableId(database.name, "public", name), ()), (), oid=oid)


def state_of(database: PostgresDatabase) -> PublicationState:
    with connect(settings_of(database)) as connection:
        state = PublicationState.of(connection, database.name)
    assert state is not None
    return state


def member_names(database: PostgresDatabase) -> set[str]:
    return {member.name for member in state_of(database).members.values()}


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    postgres_database.execute(
        'CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE "B c" (id int PRIMARY KEY, v text);'
        "CREATE TABLE days (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);"
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')"
    )
    return postgres_database


def test_it_is_made_with_the_captured_tables_alone(database: PostgresDatabase) -> None:
    ensure(database, "a", "days")
    state = state_of(database)
    assert (state.is_own, state.all_tables, state.via_root) == (True, False, True)
    assert member_names(database) == {'"public"."a"', '"public"."days"'}


def test_only_what_differs_is_altered(database: PostgresDatabase) -> None:
    ensure(database, "a", "days")
    before = state_of(database)
    ensure(database, "a", "B c")
    after = state_of(database)
    assert member_names(database) == {'"public"."a"', '"public"."B c"'}
    [(oid,)] = database.execute("SELECT 'a'::regclass::oid::bigint")
    assert after.members[oid].oid == before.members[oid].oid
    ensure(database, "a", "B c")
    assert state_of(database) == after


def test_a_publication_of_somebody_else_is_never_altered(database: PostgresDatabase) -> None:
    database.execute(f'CREATE PUBLICATION {database.name} FOR TABLE a, "B c"')
    before = state_of(database)
    ensure(database, "a")
    assert state_of(database) == before
    with pytest.raises(CaptureError) as caught:
        ensure(database, "a", "days")
    assert str(caught.value) == (
        f"Publication '{database.name}' does not have table 'public.days'. Run: ALTER PUBLICATION \"{database.name}\" "
        'ADD TABLE ONLY "public"."days"; or leave the table out with \'tables_excluded\'.'
    )


def test_a_publication_of_all_tables_or_of_a_schema_has_them(database: PostgresDatabase) -> None:
    for members in ("ALL TABLES", "TABLES IN SCHEMA public"):
        if "SCHEMA" in members:
            require_release(database, 15, "schemas are published")
        database.execute(f"CREATE PUBLICATION {database.name} FOR {members} WITH (publish_via_partition_root = true)")
        ensure(database, "a", "B c", "days")
        database.execute(f"DROP PUBLICATION {database.name}")


def test_without_the_root_partitions_are_its_tables(database: PostgresDatabase) -> None:
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE days")
    ensure(database, "days_1")
    with pytest.raises(CaptureError, match=r"does not have table 'public\.days'"):
        ensure(database, "days")


def test_one_that_leaves_out_rows_is_refused(database: PostgresDatabase) -> None:
    require_release(database, 15, "publications leave out rows")
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE a WHERE (id > 5)")
    sentence = r"leaves out rows of table 'public\.a': it has those WHERE \(id > 5\)\."
    with pytest.raises(CaptureError, match=sentence) as caught:
        ensure(database, "a")
    # The statement mends it.
    database.execute(caught.value.remedy.removeprefix("Run: BEGIN; ").removesuffix(" COMMIT;"))
    ensure(database, "a")


def test_one_of_its_own_to_which_somebody_gave_a_row_filter_is_refused_too(database: PostgresDatabase) -> None:
    require_release(database, 15, "publications leave out rows")
    ensure(database, "a")
    database.execute(f"ALTER PUBLICATION {database.name} SET TABLE a WHERE (id > 5)")
    with pytest.raises(CaptureError, match="leaves out rows"):
        ensure(database, "a")


def test_one_of_its_own_that_names_partitions_since_is_refused_with_the_statement(database: PostgresDatabase) -> None:
    ensure(database, "a", "days")
    database.execute(f"ALTER PUBLICATION {database.name} SET (publish_via_partition_root = false)")
    with pytest.raises(CaptureError, match="names rows of partitioned tables by their partitions now") as caught:
        ensure(database, "a", "days")
    database.execute(caught.value.remedy.removeprefix("Run: "))
    ensure(database, "a", "days")


def test_where_none_may_be_made_the_statement_is_told(database: PostgresDatabase) -> None:
    with pytest.raises(CaptureError) as caught:
        ensure(database, "a", publication_autocreate="disabled")
    database.execute(caught.value.remedy.removeprefix("Run: ").partition(" or set")[0])
    ensure(database, "a", publication_autocreate="disabled")
    assert not state_of(database).is_own


def test_a_role_that_may_not_make_it_is_told_who_may(database: PostgresDatabase) -> None:
    database.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN REPLICATION")
    with pytest.raises(CaptureError) as caught:
        ensure(database, "a", user="reader")
    assert caught.value.message.startswith(f"Role 'reader' may not make or alter publication '{database.name}' (")
    database.execute(caught.value.remedy.removeprefix("Let the owner of the tables run: "))
    ensure(database, "a", user="reader")


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE t (id int)",
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
        "CREATE TABLE t (id int) PARTITION BY RANGE (id); CREATE TABLE p PARTITION OF t FOR VALUES FROM (1) TO (9)",
    ],
)
def test_a_table_whose_updates_it_would_stop_is_not_published(database: PostgresDatabase, definition: str) -> None:
    database.execute(definition)
    with pytest.raises(CaptureError, match="the server refuses the application's updates and deletes") as caught:
        ensure(database, "a", "t")
    assert "REPLICA IDENTITY FULL; or leave the table out with 'tables_excluded'; or, for inserts" in str(caught.value)
    assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    full, _, rest = caught.value.remedy.removeprefix("Run: ").partition("; ")
    # Each way out is one: only inserts by a publication of the user's own,
    database.execute(rest[rest.index("CREATE PUBLICATION") : rest.index("; and capture")])
    skips = {"publication": "headrace_inserts", "skipped_operations": "u,d"}
    ensure(database, *(["p"] if " p " in definition else ["t"]), **skips)
    database.execute("UPDATE t SET id = id")
    # or the whole old row.
    database.execute(full)
    ensure(database, "a", "t")
    database.execute("UPDATE t SET id = id")


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE t (id int); ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE TABLE t (id int NOT NULL UNIQUE); ALTER TABLE t REPLICA IDENTITY USING INDEX t_id_key",
        "CREATE UNLOGGED TABLE u (id int); CREATE TABLE t (id int PRIMARY KEY)",
    ],
)
def test_a_table_with_another_identity_than_its_key_is_published(database: PostgresDatabase, definition: str) -> None:
    database.execute(definition)
    ensure(database, "t")
    database.execute("INSERT INTO t VALUES (1); UPDATE t SET id = 2; DELETE FROM t")


def test_children_by_inherits_are_tables_of_their_own(database: PostgresDatabase) -> None:
    database.execute("CREATE TABLE child (w int) INHERITS (a); INSERT INTO child VALUES (7, 1)")
    ensure(database, "a")
    assert member_names(database) == {'"public"."a"'}
    database.execute("UPDATE child SET w = 2; DELETE FROM a")
    database.execute("ALTER TABLE child ADD PRIMARY KEY (id)")
    ensure(database, "a", "child")
    ensure(database, "a", "child")
    assert member_names(database) == {'"public"."a"', '"public"."child"'}
    ensure(database, "child")
    assert member_names(database) == {'"public"."child"'}


def test_one_that_leaves_out_operations_is_refused_unless_they_are_skipped(database: PostgresDatabase) -> None:
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE a WITH (publish = 'insert, delete')")
    with pytest.raises(CaptureError, match=r"publishes no update and no truncate \(its option publish\)") as caught:
        ensure(database, "a")
    assert caught.value.remedy.endswith("set 'skipped_operations' to u,t.")
    ensure(database, "a", skipped_operations="u,t")
    with pytest.raises(CaptureError, match="publishes no truncate"):
        ensure(database, "a", skipped_operations="u")
    database.execute(caught.value.remedy.removeprefix("Run: ").partition(";")[0])
    ensure(database, "a")


KINDS_OF_TABLES = """
CREATE SCHEMA s; CREATE SCHEMA r;
CREATE TABLE s.t (id int PRIMARY KEY); CREATE TABLE r.t (id int PRIMARY KEY);
CREATE UNLOGGED TABLE s.unlogged (id int); CREATE VIEW s.view AS SELECT 1; CREATE MATERIALIZED VIEW s.kept AS SELECT 1;
CREATE TABLE s.p (id int, k int) PARTITION BY RANGE (id);
CREATE TABLE r.p1 PARTITION OF s.p FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (k);
CREATE TABLE r.p2 PARTITION OF s.p FOR VALUES FROM (10) TO (20);
CREATE TABLE s.p11 PARTITION OF r.p1 FOR VALUES FROM (0) TO (5);
CREATE TABLE p12 PARTITION OF r.p1 FOR VALUES FROM (5) TO (9);
"""


@pytest.mark.parametrize("via_root", ["true", "false"])
@pytest.mark.parametrize(
    "published",
    [
        "FOR ALL TABLES", "", "FOR TABLE s.t", "FOR TABLE s.p", "FOR TABLE r.p1", "FOR TABLE r.p1, r.p2",
        "FOR TABLE s.p, r.p2", "FOR TABLE s.p11", "FOR TABLE s.p, s.p11, r.t", "FOR TABLES IN SCHEMA s",
        "FOR TABLES IN SCHEMA r", "FOR TABLES IN SCHEMA s, r", "FOR TABLES IN SCHEMA public",
        "FOR TABLES IN SCHEMA s, TABLE r.p1", "FOR TABLES IN SCHEMA r, TABLE s.p",
    ],
)  # fmt: skip
def test_its_tables_are_those_that_the_server_publishes(
    postgres_database: PostgresDatabase, published: str, via_root: str
) -> None:
    name = postgres_database.name
    if "SCHEMA" in published:
        require_release(postgres_database, 15, "schemas are published")
    postgres_database.execute(
        f"{KINDS_OF_TABLES}; CREATE PUBLICATION {name} {published} WITH (publish_via_partition_root = {via_root})"
    )
    told = postgres_database.execute(f"SELECT DISTINCT relid::bigint FROM pg_get_publication_tables('{name}')")
    assert sorted(state_of(postgres_database).members) == sorted(oid for (oid,) in told)


def test_a_transaction_that_truncated_a_table_does_not_hold_it_up(database: PostgresDatabase) -> None:
    ensure(database, "a", "days")
    with database.connect(autocommit=False) as session:
        session.execute("TRUNCATE a")
        assert member_names(database) == {'"public"."a"', '"public"."days"'}
