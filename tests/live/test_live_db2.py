"""Rule: the contract runs on a real Db2 by what one can do. As there is none here, the emulator stands in for it behind
the same driver's interface, and says nothing of what a server would answer."""

from __future__ import annotations

import pytest
from tests.live.db2 import LiveDb2, settings_from

from headrace.testing.captured_database import data
from headrace_emulators.db2 import EmulatedDb2


def test_the_environment_names_the_database():
    url = "db2://cdc:p%40ss%2Fword@db:50001/SALES?security=SSL&platform=zos"
    assert settings_from({"HEADRACE_DB2_URL": url}) == {
        "driver": "ibm-db", "hostname": "db", "port": "50001", "database": "SALES", "user": "cdc",
        "password": "p@ss/word", "security": "SSL", "platform": "zos",
    }  # fmt: skip
    assert settings_from({}) is None
    for wrong in ("db:50000", "sqlserver://db/shop", "db2://db"):
        with pytest.raises(ValueError, match="HEADRACE_DB2_URL has the form db2://"):
            settings_from({"HEADRACE_DB2_URL": wrong})


def test_what_the_scenarios_ask_for_is_done_and_cleared_away(tmp_path):
    emulated = EmulatedDb2(tmp_path / "server").create_database("shop")
    settings = {"driver": "db2-emulator", **emulated.settings}
    with emulated.capture_program(poll=0.02):
        database = LiveDb2(settings)
        database.create("t", "id int not null primary key, v varchar(5)", [(1, "a")])
        run = database.run()
        assert data(run.all()) == [("r", "t", {"id": "1", "v": "a"})]
        database.update("t", "v = 'b'", "id = 1")
        database.capture()
        assert data(run.all()) == [("u", "t", {"id": "1", "v": "b"})]
        database.clean()
        database.close()
        assert LiveDb2(settings)._rows("SELECT COUNT(*) FROM ASNCDC.IBMSNAP_REGISTER") == [(1,)]
    emulated.close()
