"""Rule: the emulated server refuses what a server refuses, and what it does not know, by Oracle's numbers."""

from __future__ import annotations

import pytest

from headrace_emulators.oracle import EmulatedOracle
from headrace_emulators.oracle.errors import DatabaseError
from headrace_emulators.oracle.logminer import SETTINGS

SET = "ALTER SESSION SET " + " ".join(f"{name} = '{value}'" for name, value in SETTINGS.items())
ADD = "BEGIN SYS.DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => '{}', OPTIONS => SYS.DBMS_LOGMNR.ADDFILE); END;"
START = (
    "BEGIN SYS.DBMS_LOGMNR.START_LOGMNR(STARTSCN => 1000000, ENDSCN => 1000002, "
    "OPTIONS => SYS.DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG); END;"
)
CONTENTS = "SELECT SQL_REDO, CSF FROM V$LOGMNR_CONTENTS"


@pytest.fixture
def database(tmp_path):
    with EmulatedOracle(tmp_path / "server") as made:
        made.run("CREATE TABLE T (ID NUMBER(3) NOT NULL PRIMARY KEY, NAME VARCHAR2(5) NOT NULL)")
        made.run("INSERT INTO T (ID, NAME) VALUES (1, 'a')")
        yield made


REFUSED = [
    (["SELECT NAME FROM NOWHERE"], 942),
    (["SELECT NOTHING FROM T"], 904),
    (["SELECT SOUNDEX(NAME) FROM T"], 904),
    (["SELEC ID FROM T"], 933),
    (["INSERT INTO T (ID, NAME) VALUES (1, 'b')"], 1),
    (["INSERT INTO T (ID, NAME) VALUES (2, '')"], 1400),
    (["INSERT INTO T (ID, NAME) VALUES (2, 'too long')"], 12899),
    (["INSERT INTO T (ID, NAME) VALUES (1000, 'b')"], 1438),
    (["CREATE TABLE T (ID NUMBER)"], 955),
    (["CREATE TABLE U (V SDO_GEOMETRY)"], 3001),
    (["CREATE INDEX I ON T (NAME)"], 3001),
    (["ROLLBACK TO NOWHERE"], 1086),
    (["SELECT ID FROM T AS OF SCN 1"], 1466),
    (["SELECT ID FROM T AS OF SCN 9999999999"], 8181),
    ([CONTENTS], 1306),
    ([START], 3001),
    ([SET, START], 1292),
    ([SET, ADD.format("redo_1_9_a")], 1284),
    ([SET, ADD.format("redo_1_1_a"), ADD.format("redo_1_1_b")], 1289),
    (["BEGIN SYS.DBMS_LOGMNR.END_LOGMNR(); END;"], 1307),
    (["BEGIN DBMS_OUTPUT.PUT_LINE('x'); END;"], 3001),
]


@pytest.mark.parametrize(("statements", "number"), REFUSED)
def test_what_is_wrong_is_refused_with_oracles_number(database, statements, number):
    with database.connect() as session:
        for statement in statements[:-1]:
            session.execute(statement)
        with pytest.raises(DatabaseError) as refused:
            session.execute(statements[-1]).fetchall()
        assert refused.value.code == number
        assert str(refused.value).startswith(f"ORA-{number:05}")


def test_mining_without_the_settings_that_decide_the_text_is_refused(database):
    with database.connect() as session:
        session.execute(ADD.format("redo_1_1_a"))
        with pytest.raises(DatabaseError, match="NLS_DATE_FORMAT"):
            session.execute(START)


def test_transactions_see_their_own_work_and_what_others_committed(database):
    with database.connect() as one, database.connect() as two:
        one.execute("INSERT INTO T (ID, NAME) VALUES (2, 'b')")
        assert one.execute("SELECT ID FROM T ORDER BY ID").fetchall() == [(1,), (2,)]
        assert two.execute("SELECT ID FROM T ORDER BY ID").fetchall() == [(1,)]
        before = database.scn
        one.commit()
        assert two.execute("SELECT ID FROM T ORDER BY ID").fetchall() == [(1,), (2,)]
        assert two.execute("SELECT ID FROM T AS OF SCN :n", n=before).fetchall() == [(1,)]


def test_a_row_that_another_transaction_changes_is_locked(database):
    with database.connect() as one, database.connect() as two:
        one.execute("UPDATE T SET NAME = 'x' WHERE ID = 1")
        with pytest.raises(DatabaseError) as refused:
            two.execute("UPDATE T SET NAME = 'y' WHERE ID = 1")
        assert refused.value.code == 54


def test_what_is_not_committed_is_mined_too_and_what_is_not_flushed_is_not(database):
    with database.connect() as one, database.connect() as miner:
        one.execute("INSERT INTO T (ID, NAME) VALUES (2, 'b')")
        miner.execute(SET)
        miner.execute(ADD.format("redo_1_1_a"))
        end = START.replace("1000002", str(database.scn))
        miner.execute(end)
        assert all("'2'" not in (row[0] or "") for row in miner.execute(CONTENTS))
        database.run("INSERT INTO T (ID, NAME) VALUES (3, 'c')")
        assert any("'2'" in (row[0] or "") for row in miner.execute(CONTENTS))


def test_an_online_log_is_gone_when_it_was_overwritten(database):
    with database.connect() as miner:
        miner.execute(SET)
        for _ in range(3):
            database.switch_log()
        with pytest.raises(DatabaseError) as refused:
            miner.execute(ADD.format("redo_1_1_a"))
        assert refused.value.code == 1284
        miner.execute(ADD.format("arch_1_1"))
        miner.execute(START)
        assert miner.execute(CONTENTS).fetchall()


BUILD = "BEGIN SYS.DBMS_LOGMNR_D.BUILD(OPTIONS => SYS.DBMS_LOGMNR_D.STORE_IN_REDO_LOGS); END;"
IN_LOGS = "SYS.DBMS_LOGMNR.DICT_FROM_REDO_LOGS + SYS.DBMS_LOGMNR.DDL_DICT_TRACKING"


def mining(options, low, high):
    return f"BEGIN SYS.DBMS_LOGMNR.START_LOGMNR(STARTSCN => {low}, ENDSCN => {high}, OPTIONS => {options}); END;"


def added(miner, *sequences):
    miner.execute(SET)
    for sequence in sequences:
        miner.execute(ADD.format(f"arch_1_{sequence}"))


def test_names_are_those_of_the_catalog_now_or_of_a_dictionary_in_the_logs(database):
    database.run(BUILD)
    low = database.scn
    database.run("INSERT INTO T (ID, NAME) VALUES (2, 'b')", "ALTER TABLE T ADD (MORE NUMBER(3))")
    high = database.scn
    database.switch_log()
    shown = "SELECT SEG_OWNER, TABLE_NAME, STATUS, INFO, SQL_REDO FROM V$LOGMNR_CONTENTS WHERE OPERATION_CODE = 1"
    with database.connect() as miner:
        added(miner, 2, 3, 4)
        miner.execute(mining("SYS.DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG", low, high))
        ((owner, name, status, info, sql),) = miner.execute(shown).fetchall()
        assert (owner, name[:5], status, info) == ("UNKNOWN", "OBJ# ", 2, "Dictionary Mismatch")
        assert sql == f'insert into "UNKNOWN"."{name}"("COL 1","COL 2") values (HEXTORAW(\'32\'),HEXTORAW(\'62\'));'
        miner.execute(mining(IN_LOGS, low, high))
        ((owner, name, status, info, sql),) = miner.execute(shown).fetchall()
        assert (owner, name, status, info) == ("SHOP", "T", 0, None)
        assert sql == 'insert into "SHOP"."T"("ID","NAME") values (\'2\',\'b\');'


@pytest.mark.parametrize(
    ("sequences", "options", "before", "number"),
    [
        ((1, 2, 3, 4), IN_LOGS, 0, None),
        ((1, 4), IN_LOGS, 0, 1371),
        ((3, 4), IN_LOGS, 0, 1371),
        ((1, 2, 3, 4), IN_LOGS, 2, 1371),
        ((2, 3), IN_LOGS, 0, 1291),
        ((1, 2, 3, 4), IN_LOGS + " + SYS.DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG", 0, 1298),
        ((1, 2, 3, 4), "SYS.DBMS_LOGMNR.DICT_FROM_REDO_LOGS", 0, 3001),
    ],
    ids=["whole", "none", "its end only", "behind the first SCN", "a log since is missing", "both", "without tracking"],
)
def test_a_dictionary_in_the_logs_is_whole_and_before_the_first_scn(database, sequences, options, before, number):
    database.run(BUILD)
    low = database.scn - before
    database.run("INSERT INTO T (ID, NAME) VALUES (2, 'b')")
    database.switch_log()
    with database.connect() as miner:
        added(miner, *sequences)
        start = mining(options, low, database.scn - 1)
        if number is None:
            miner.execute(start)
            return
        with pytest.raises(DatabaseError) as refused:
            miner.execute(start)
        assert refused.value.code == number


def test_a_dictionary_is_written_from_the_root_into_archived_logs(tmp_path):
    with EmulatedOracle(tmp_path / "server", "CDB1", pdb="PDB1") as database, database.connect() as session:
        session.execute(BUILD)
        for statement, number in (
            ("ALTER SESSION SET CONTAINER = PDB1", 65040),
            ("ALTER SESSION SET CONTAINER = CDB$ROOT", 1325),
        ):
            session.execute(statement)
            with pytest.raises(DatabaseError) as refused:
                session.execute(BUILD)
            assert refused.value.code == number
            database.set_fact("log_mode", "NOARCHIVELOG")
