"""Rule: the emulated Capture program fills change tables as SQL Replication's reference describes them."""

from __future__ import annotations

import datetime as dt

import pytest

from headrace.testing.waiting import until
from headrace_emulators.db2 import EmulatedDb2
from headrace_emulators.db2.driver import NotSupportedError, ProgrammingError
from headrace_emulators.db2.shop import Shop

CHANGES = (
    "SELECT HEX(IBMSNAP_COMMITSEQ), HEX(IBMSNAP_INTENTSEQ), IBMSNAP_OPERATION, ID, V FROM ASNCDC.CDC_S_T"
    " ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ"
)


@pytest.fixture
def database(tmp_path):
    with EmulatedDb2(tmp_path / "server").create_database("shop") as made:
        made.execute("CREATE TABLE S.T (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(5))")
        made.register("S", "T")
        yield made


def changes(database):
    return [(row[2], row[3], row[4]) for row in database.execute(CHANGES)]


def test_only_what_is_committed_and_captured_is_there(database):
    storage = database.session.storage
    storage.autocommit = False
    database.execute("INSERT INTO S.T VALUES (1, 'a')")
    storage.rollback()
    storage.autocommit = True
    database.execute("INSERT INTO S.T VALUES (2, 'b')")
    assert changes(database) == []
    assert (database.capture(), changes(database)) == (1, [("I", 2, "b")])


def test_an_update_is_a_delete_and_an_insert_unless_it_is_registered_otherwise(database):
    database.execute("INSERT INTO S.T VALUES (1, 'a')")
    database.execute("UPDATE S.T SET V = 'b'")
    database.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET CHG_UPD_TO_DEL_INS = 'N' WHERE SOURCE_TABLE = 'T'")
    database.execute("VALUES ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')")
    database.execute("UPDATE S.T SET V = 'c'")
    database.execute("DELETE FROM S.T")
    database.capture()
    assert changes(database) == [("I", 1, "a"), ("D", 1, "a"), ("I", 1, "b"), ("U", 1, "c"), ("D", 1, "c")]


def test_a_transaction_has_one_commit_sequence_over_all_tables_and_a_unit_of_work(database):
    database.execute("CREATE TABLE S.U (ID INTEGER)")
    database.register("S", "U")
    with database.transaction() as cursor:
        cursor.execute("INSERT INTO S.T VALUES (1, 'a'), (2, 'b')")
        cursor.execute("INSERT INTO S.U VALUES (1)")
    database.capture()
    commits = {row[0] for row in database.execute(CHANGES)}
    [other] = database.execute("SELECT HEX(IBMSNAP_COMMITSEQ) FROM ASNCDC.CDC_S_U").fetchall()
    [unit] = database.execute("SELECT HEX(IBMSNAP_COMMITSEQ) FROM ASNCDC.IBMSNAP_UOW").fetchall()
    assert commits == {other[0]} == {unit[0]}
    assert len(other[0]) == 32


def test_sequences_grow(database):
    for n in range(5):
        database.execute("INSERT INTO S.T VALUES (?, 'x')", (n,))
    database.capture()
    rows = [row[:2] for row in database.execute(CHANGES)]
    flat = [sequence for commit, change in rows for sequence in (change, commit)]
    assert flat == sorted(flat)


def test_nothing_is_logged_while_a_registration_is_inactive(database):
    database.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'I' WHERE SOURCE_TABLE = 'T'")
    database.execute("INSERT INTO S.T VALUES (1, 'a')")
    database.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'A' WHERE SOURCE_TABLE = 'T'")
    database.execute("INSERT INTO S.T VALUES (2, 'b')")
    database.capture()
    assert changes(database) == [("I", 2, "b")]


def test_each_activation_says_where_capture_of_the_table_begins(database):
    sql = "SELECT HEX(CD_OLD_SYNCHPOINT) FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'T'"
    begins, commits = [], []
    for n in range(3):
        begins += [row[0] for row in database.execute(sql)]
        database.execute("INSERT INTO S.T VALUES (?, 'x')", (n,))
        database.capture()
        commits.append([row[0] for row in database.execute(CHANGES)][-1])
        for state in "IA":
            database.execute(f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = '{state}' WHERE SOURCE_TABLE = 'T'")
    flat = [lsn for pair in zip(begins, commits, strict=True) for lsn in pair]
    assert flat == sorted(set(flat))
    assert len(changes(database)) == 3


def test_an_idle_capture_program_moves_the_global_record(database):
    sql = "SELECT SYNCHTIME FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'"
    [(before,)] = database.execute(sql).fetchall()
    database.clock = lambda: dt.datetime(2030, 1, 1)
    database.capture()
    [(after,)] = database.execute(sql).fetchall()
    assert after == dt.datetime(2030, 1, 1) > before


def test_pruning_forgets_and_says_how_far(database):
    for n in range(3):
        database.execute("INSERT INTO S.T VALUES (?, 'x')", (n,))
    database.capture()
    sequences = [bytes.fromhex(row[0]) for row in database.execute(CHANGES)]
    sql = "SELECT HEX(CD_OLD_SYNCHPOINT) FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_TABLE = 'T'"
    assert database.execute(sql).fetchone()[0] < sequences[0].hex().upper()
    database.prune(sequences[1])
    assert [row[1] for row in changes(database)] == [1, 2]
    assert database.execute(sql).fetchall() == [(sequences[1].hex().upper(),)]
    assert database.execute("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_UOW").fetchone() == (2,)


def test_a_registration_is_made_and_taken_away_by_the_setups_procedures(database):
    database.execute("CALL ASNCDC.REMOVETABLE('S', 'T')")
    with pytest.raises(ProgrammingError, match="CDC_S_T"):
        changes(database)
    database.execute("CREATE TABLE S.B (ID INTEGER, FLAG BOOLEAN)")
    with pytest.raises(NotSupportedError, match="BOOLEAN column FLAG"):
        database.execute("CALL ASNCDC.ADDTABLE('S', 'B')")
    with pytest.raises(ProgrammingError, match="not registered"):
        database.execute("CALL ASNCDC.REMOVETABLE('S', 'B')")


def test_the_catalog_tells_types_and_keys_on_both_platforms(database):
    database.execute(
        "CREATE TABLE S.C (A CHAR(4) FOR BIT DATA NOT NULL UNIQUE, B TIMESTAMP(9), C REAL, D VARGRAPHIC(7))"
    )
    luw = (
        "SELECT COLNAME, TYPENAME, LENGTH, SCALE, CODEPAGE, NULLS FROM SYSCAT.COLUMNS "
        "WHERE TABNAME = 'C' ORDER BY COLNO"
    )
    assert database.execute(luw).fetchall() == [
        ("A", "CHARACTER", 4, 0, 0, "N"), ("B", "TIMESTAMP", 12, 9, 0, "Y"), ("C", "REAL", 4, 0, 0, "Y"),
        ("D", "VARGRAPHIC", 7, 0, 1200, "Y"),
    ]  # fmt: skip
    zos = "SELECT NAME, COLTYPE, LENGTH, FOREIGNKEY FROM SYSIBM.SYSCOLUMNS WHERE TBNAME = 'C' ORDER BY COLNO"
    found = [tuple(v.strip() if isinstance(v, str) else v for v in row) for row in database.execute(zos)]
    assert found == [("A", "CHAR", 4, "B"), ("B", "TIMESTMP", 12, ""), ("C", "FLOAT", 4, ""), ("D", "VARG", 7, "")]
    keys = (
        "SELECT i.UNIQUERULE, u.COLNAME FROM SYSCAT.INDEXES AS i JOIN SYSCAT.INDEXCOLUSE AS u ON u.INDNAME = i.INDNAME"
    )
    assert database.execute(f"{keys} WHERE i.TABNAME = 'C'").fetchall() == [("U", "A")]


def test_the_capture_program_can_be_suspended(database):
    with database.capture_program(poll=0.02) as program:
        database.execute("VALUES ASNCDC.ASNCDCSERVICES('suspend', 'asncdc')")
        # A look may have begun before; the next one has not.
        _wait_for_looks(program, 1)
        database.execute("INSERT INTO S.T VALUES (1, 'a')")
        _wait_for_looks(program, 2)
        assert changes(database) == []
        database.execute("VALUES ASNCDC.ASNCDCSERVICES('resume', 'asncdc')")
        until(lambda: changes(database), "the change is captured")


def _wait_for_looks(program, count):
    seen = program.looks
    until(lambda: program.looks >= seen + count, "the program has looked")


def test_the_shop_is_the_same_for_the_same_seed(tmp_path):
    def rows(folder):
        shop = Shop.create(EmulatedDb2(tmp_path / folder), 7, customers=10, products=5)
        shop.replay(transactions=40)
        found = [
            shop.database.execute(f"SELECT * FROM SHOP.{name}").fetchall()
            for name in ("CUSTOMERS", "PRODUCTS", "ORDERS", "ORDER_LINES", "AUDIT_LOG")
        ]
        shop.database.close()
        return [[tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in table] for table in found]

    assert rows("a") == rows("b")
