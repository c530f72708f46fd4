"""Rule: the page on real servers says what was seen, and where nothing was seen, why."""

from __future__ import annotations

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
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    assert set(services) == {subject.name for subject in SUBJECTS} - {"db2"}
    for subject in SUBJECTS:
        if subject.name in services:
            [port] = services[subject.name]["ports"]
            assert "@" + port.rpartition(":")[0] in subject.in_container()


@pytest.mark.parametrize("kind", URLS)
def test_the_environment_names_a_server(kind: str) -> None:
    text = f"{kind}://cdc:p%40ss@db:1234"
    assert Address.of(kind, {URLS[kind]: text}) == Address("db", 1234, "cdc", "p@ss")
    assert Address.of(kind, {}) is None
    for wrong in ("db:1", f"{kind}://db", "other://db:1", f"{kind}://db:1/shop"):
        with pytest.raises(ValueError, match=f"{URLS[kind]} has the form {kind}://"):
            Address.of(kind, {URLS[kind]: wrong})
