"""A local session has our settings under the user's, listens on loopback only, and is taken again when it suffices."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import OptionError
from headrace.spark import session

DELTA = "io.delta:delta-spark_2.13:4.0.0"


@pytest.fixture(autouse=True)
def jars_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        session, "maven_jars", lambda jars: tuple(Path(f"/jars/{jar.split(':')[1]}.jar") for jar in jars)
    )


def test_given_settings_win_over_ours() -> None:
    settings = session._settings([], {"spark.driver.memory": "1g", "spark.ui.enabled": "true"}, "local[2]")
    assert settings["spark.driver.memory"] == "1g"
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.sql.session.timeZone"] == "UTC"


def test_lists_of_the_user_are_joined_to_ours() -> None:
    given = {
        "spark.jars": "/mine.jar",
        "spark.sql.extensions": "my.Extension",
        "spark.driver.extraJavaOptions": "-Da=b",
    }
    settings = session._settings([DELTA], given, "local[2]")
    assert settings["spark.jars"] == "/jars/delta-spark_2.13.jar,/mine.jar"
    assert settings["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,my.Extension"
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Da=b")


def test_delta_is_set_up_only_when_it_is_asked_for() -> None:
    assert "spark.sql.catalog.spark_catalog" in session._settings([DELTA], {}, "local[2]")
    without = session._settings([], {}, "local[2]")
    assert not {"spark.sql.catalog.spark_catalog", "spark.sql.extensions", "spark.jars"} & without.keys()


def test_a_local_master_listens_on_loopback_only() -> None:
    names = {"spark.driver.host", "spark.driver.bindAddress"}
    local = session._settings([], {}, "local[2]")
    assert {local[name] for name in names} == {"127.0.0.1"}
    assert not names & session._settings([], {}, "yarn").keys()


@pytest.mark.parametrize(
    ("master", "partitions"), [("local", "2"), ("local[1]", "2"), ("local[8]", "16"), ("local[4,3]", "8")]
)
def test_shuffles_have_two_partitions_for_each_core(master: str, partitions: str) -> None:
    assert session._settings([], {}, master)["spark.sql.shuffle.partitions"] == partitions


def test_the_log_settings_exist() -> None:
    option = session._settings([], {}, "local[2]")["spark.driver.extraJavaOptions"]
    assert Path(option.partition("=file://")[2].partition('"')[0]).is_file()


def test_a_malformed_coordinate_is_an_error_that_shows_the_form() -> None:
    with pytest.raises(OptionError, match="group:artifact:version"):
        session._settings(["delta-spark"], {}, "local[2]")


class RunningSession:
    """A session that was started with Delta."""

    def __init__(self) -> None:
        self.changed: dict[str, str] = {}
        self.conf = SimpleNamespace(
            isModifiable=lambda name: name.startswith("spark.sql."), set=self.changed.__setitem__
        )
        self.sparkContext = SimpleNamespace(getConf=lambda: {"spark.jars": "/jars/io.delta_delta-spark_2.13-4.0.0.jar"})


def test_a_running_session_is_taken_and_changed_as_far_as_possible() -> None:
    running: Any = RunningSession()
    conf = {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "9g"}
    assert session._reused(running, [DELTA], conf) is running
    assert running.changed == {"spark.sql.shuffle.partitions": "3"}


def test_a_running_session_without_a_jar_is_an_error_that_says_what_to_do() -> None:
    running: Any = RunningSession()
    with pytest.raises(OptionError, match=r"without org\.apache.*Stop it first"):
        session._reused(running, [session.KAFKA], {})
