"""Rule: where a login reads something else than the log has, `check` says so, and a run does not begin if that is
certain. By reading of the servers' documentation: the emulators have the catalogs, and hide nothing themselves."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run as OracleRun
from tests.support.captured_shop import Db2Database, closing
from tests.support.sqlserver_runs import Run, create

from headrace.errors import CaptureError
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.catalog import too_old
from headrace.sources.tables.restricted import RestrictedRead, require_whole_reads
from headrace_emulators.oracle import EmulatedOracle
from headrace_emulators.sqlserver import EmulatedServer

SURE = RestrictedRead("dbo.t", "It hides rows.", "Run: GRANT.", certain=True)
MAYBE = RestrictedRead("dbo.u", "It may hide rows.", "Look at it.")


def test_what_is_certain_stops_and_the_rest_is_logged(caplog):
    require_whole_reads([SURE, MAYBE], ["dbo.u"])
    assert "Table 'dbo.u': It may hide rows. Look at it." in caplog.text
    assert "dbo.t" not in caplog.text
    with pytest.raises(CaptureError, match=r"Table 'dbo\.t': It hides rows\."):
        require_whole_reads([SURE], ["dbo.t"])


@pytest.fixture
def shop(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as database:
        for name in ("policy", "masked", "secret", "plain"):
            create(database, name, "id int not null primary key, c varchar(9)", [(1, "a")])
        # As CREATE SECURITY POLICY, MASKED WITH and ENCRYPTED WITH leave them in the catalog.
        execute = database.session.storage.sqlite.execute
        number = {
            name: database.execute(f"SELECT OBJECT_ID('dbo.{name}')").fetchval()
            for name in ("policy", "masked", "secret")
        }
        execute('INSERT INTO "sys.security_policies" VALUES (?, 1, 1)', ("tenants",))
        execute('INSERT INTO "sys.security_predicates" VALUES (1, ?, 0)', (number["policy"],))
        execute("UPDATE \"sys.columns\" SET is_masked = 1 WHERE name = 'c' AND object_id = ?", (number["masked"],))
        execute(
            "UPDATE \"sys.columns\" SET encryption_type = 1 WHERE name = 'c' AND object_id = ?", (number["secret"],)
        )
        yield database


def found(run):
    return {one.table: (one.certain, one.sentence) for one in run.source.restricted_reads()}


def test_sql_server_has_policies_masks_and_encrypted_columns(shop, caplog):
    said = found(Run(shop, user="cdc"))
    assert set(said) == {"dbo.policy", "dbo.masked", "dbo.secret"}
    assert said["dbo.policy"] == (
        False,
        "Security policy 'tenants' filters its rows for who reads it, and not for change tables. Whether it hides rows "
        "is not known.",
    )
    assert said["dbo.masked"][0]
    assert said["dbo.masked"][1].startswith("Column 'c' is masked for the login")
    assert said["dbo.secret"][1].startswith(
        "Column 'c' is encrypted by Always Encrypted. The server has no plain values"
    )
    with pytest.raises(CaptureError, match="Column 'c' is masked for the login"):
        Run(shop, user="cdc").all()
    shop.execute("GRANT UNMASK TO cdc")
    run = Run(shop, user="cdc")
    assert set(found(run)) == {"dbo.policy", "dbo.secret"}
    rows = {row["table"]["name"]: set(dict(row["after"])) for row in run.all() if row["op"] == "r"}
    assert rows == {"policy": {"id", "c"}, "masked": {"id", "c"}, "plain": {"id", "c"}, "secret": {"id"}}
    assert "Table 'dbo.policy': Security policy 'tenants' filters its rows" in caplog.text
    assert "left out: Always Encrypted keeps its values from the server" in caplog.text


@pytest.mark.parametrize(
    "options",
    [{"snapshot_mode": "no_data"}, {"column_exclude_list": r"dbo\.masked\.c"}, {"tables_excluded": "dbo.masked"}],
    ids=["no rows are read", "the column is left out", "the table is left out"],
)
def test_a_mask_that_nothing_is_read_through_stops_nothing(shop, options):
    Run(shop, user="cdc", **options).all()


def test_a_policy_that_hides_every_row_is_certain(shop):
    shop.execute("GRANT UNMASK TO cdc")
    run = Run(shop, user="cdc")
    with run.source._connect() as connection:
        rows = connection.rows
        [policy] = [t.newest for t in run.source._captured(connection, strict=False) if t.id.name == "policy"]
        connection.rows = lambda sql, *more: [] if sql == statements.any_row(policy) else rows(sql, *more)
        [one] = run.source.dialect.restricted(connection, [policy])
    assert one.certain
    assert "It shows the login no row, of 1." in one.sentence


class Server:
    def __init__(self, major, edition):
        self.answer = (major, edition)

    def rows(self, sql):
        return [self.answer]


@pytest.mark.parametrize(
    ("major", "edition", "refused"), [(12, 3, True), (13, 2, False), (16, 3, False), (12, 5, False), (12, 8, False)]
)
def test_the_oldest_release_of_sql_server_is_said(major, edition, refused):
    error = too_old(Server(major, edition))
    assert (error is not None) == refused
    assert error is None or "SQL Server 2016 (version 13) is the oldest that can be read" in str(error)


@pytest.mark.parametrize("platform", ["luw", "zos"])
def test_db2_has_row_and_column_access_control(tmp_path, caplog, platform):
    with closing(Db2Database(tmp_path / "server")) as database:
        for name in ("rowed", "masked", "plain"):
            database.create(name, "id int not null primary key", [(1,)])
        database.execute("ALTER TABLE SHOP.ROWED ACTIVATE ROW ACCESS CONTROL")
        database.execute("ALTER TABLE SHOP.MASKED ACTIVATE COLUMN ACCESS CONTROL")
        run = database.run(platform=platform)
        said = found(run)
        assert {table: certain for table, (certain, _) in said.items()} == {"SHOP.ROWED": False, "SHOP.MASKED": False}
        run.all()
        assert "Table 'SHOP.ROWED': Row access control filters its rows" in caplog.text
        assert "Table 'SHOP.MASKED': Column masks may show the login other values" in caplog.text


def test_oracle_has_policies_and_redaction_for_who_is_not_exempt(tmp_path):
    with EmulatedOracle(tmp_path / "server") as database:
        for name in ("A", "B", "C"):
            database.run(f"CREATE TABLE {name} (ID NUMBER(4) NOT NULL PRIMARY KEY, V VARCHAR2(9))")
        execute = database._connection.execute
        # As DBMS_RLS and DBMS_REDACT leave them in the catalog.
        execute("INSERT INTO ALL_POLICIES VALUES ('SHOP', 'A', 'TENANTS', 'YES', 'YES')")
        execute(
            "INSERT INTO ALL_POLICIES VALUES ('SHOP', 'C', 'OFF', 'YES', 'NO'), ('SHOP', 'C', 'WRITES', 'NO', 'YES')"
        )
        execute("INSERT INTO REDACTION_POLICIES VALUES ('SHOP', 'B', 'CARDS', 'YES    ')")
        execute("INSERT INTO REDACTION_COLUMNS VALUES ('SHOP', 'B', 'V')")
        run = OracleRun(database)
        said = found(run)
        assert {table: certain for table, (certain, _) in said.items()} == {"SHOP.A": True, "SHOP.B": True}
        assert "Policy 'TENANTS' (Virtual Private Database)" in said["SHOP.A"][1]
        with pytest.raises(CaptureError, match="GRANT EXEMPT ACCESS POLICY TO C##MINER"):
            run.batch()
        execute("INSERT INTO SESSION_PRIVS VALUES ('EXEMPT ACCESS POLICY')")
        with pytest.raises(CaptureError, match="Data Redaction changes the values of 'V'"):
            OracleRun(database).batch()
        execute("INSERT INTO SESSION_PRIVS VALUES ('EXEMPT REDACTION POLICY')")
        assert found(run) == {}
        OracleRun(database).until_level()
