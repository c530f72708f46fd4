"""Rule: the page on real servers says what was seen, and where nothing was seen, why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from tests.live import proof
from tests.live.named_servers import URLS, Address
from tests.live.proof import COMPOSE, PAGE, SUBJECTS, Seen, page, read


def test_the_page_has_a_line_for_each_server_and_says_why_nothing_ran() -> None:
    text = page({"mariadb": Seen("10.11", "this machine's packages", 50, 1, 4, "2026-11-25")})
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")][2:]
    assert [line[0] for line in lines] == ["SQL Server", "Db2", "Oracle", "PostgreSQL", "MySQL", "MariaDB"]
    assert lines[-1] == ["MariaDB", "10.11", "this machine's packages", "50", "1", "4", "2026-11-25"]
    assert lines[0] == ["SQL Server", "", "not run", "", "", "", "never"]


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read())


def test_what_was_seen_stays_on_a_machine_that_can_not_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "PAGE", tmp_path / "proof.md")
    monkeypatch.setattr(proof, "RESULTS", tmp_path / "proof.json")
    monkeypatch.setattr(proof, "_has_docker", lambda: False)
    found = Seen("12.1", "named by its address", 33, 0, 2, "2026-11-20")
    monkeypatch.setattr(proof, "tried", lambda subject: found)
    assert proof.main(["--only", "db2"]) == 0
    monkeypatch.setattr(proof, "tried", lambda subject: Seen("", "not run: no Docker on that machine"))
    assert proof.main(["--only", "db2", "oracle"]) == 0
    assert read() == {"db2": found, "oracle": Seen("", "not run: no Docker on that machine")}


def test_a_failed_test_is_on_the_page_and_in_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "PAGE", tmp_path / "proof.md")
    monkeypatch.setattr(proof, "RESULTS", tmp_path / "proof.json")
    monkeypatch.setattr(proof, "tried", lambda subject: Seen("17", "its official image", 33, 1, 2, "2026-11-20"))
    assert proof.main(["--only", "postgresql"]) == 1
    assert "| 33 | 1 | 2 |" in (tmp_path / "proof.md").read_text(encoding="utf-8")


def test_every_server_of_the_compose_file_listens_on_the_loopback_where_its_tests_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCEPT_EULA", "Y")
    monkeypatch.setenv("MSSQL_SA_PASSWORD", "p@ss")
    monkeypatch.setenv("LICENSE", "accept")
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    assert set(services) == {subject.name for subject in SUBJECTS}
    for subject in SUBJECTS:
        [port] = services[subject.name]["ports"]
        assert "@" + port.rpartition(":")[0] in subject.in_container()


@pytest.mark.parametrize("name", ["sqlserver", "db2"])
def test_a_server_whose_licence_was_not_accepted_is_not_started(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ACCEPT_EULA", "LICENSE", *(subject.url for subject in SUBJECTS)):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(proof, "_has_docker", lambda: True)
    monkeypatch.setattr(proof, "_compose", lambda *words, told=None: pytest.fail(f"started: {words}"))
    [subject] = (one for one in SUBJECTS if one.name == name)
    assert proof.tried(subject).where.startswith("not run: its licence was not accepted: set ")


def test_a_container_is_named_prepared_tested_and_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LICENSE", "accept")
    monkeypatch.delenv("HEADRACE_DB2_URL", raising=False)
    done: list[str] = []
    [db2] = (one for one in SUBJECTS if one.name == "db2")
    monkeypatch.setattr(proof, "_has_docker", lambda: True)
    monkeypatch.setattr(proof, "_install", lambda subject: done.append(f"driver of {subject.name}"))
    monkeypatch.setattr(proof, "_compose", lambda *words, told=None: done.append(" ".join(words)))

    def tests(subject: proof.Subject, where: str) -> Seen:
        done.append(os.environ[subject.url])
        return Seen("11.5", where, 1)

    monkeypatch.setattr(proof, "_tests", tests)
    assert proof.tried(db2) == Seen("11.5", "its official image", 1)
    assert done == [
        "driver of db2",
        "up --build --detach --wait --wait-timeout 900 db2",
        "exec -T db2 su - db2inst1",
        "db2://db2inst1:Choose_0ne@127.0.0.1:50000/testdb",
        "down --volumes",
    ]
    assert "HEADRACE_DB2_URL" not in os.environ


@pytest.mark.parametrize("kind", URLS)
def test_the_environment_names_a_server(kind: str) -> None:
    text = f"{kind}://cdc:p%40ss@db:1234"
    assert Address.of(kind, {URLS[kind]: text}) == Address("db", 1234, "cdc", "p@ss")
    assert Address.of(kind, {}) is None
    for wrong in ("db:1", f"{kind}://db", "other://db:1", f"{kind}://db:1/shop"):
        with pytest.raises(ValueError, match=f"{URLS[kind]} has the form {kind}://"):
            Address.of(kind, {URLS[kind]: wrong})
