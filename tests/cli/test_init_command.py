"""Rule: what `headrace init` writes passes `headrace check --level static` as it is, and holds no secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.status_shop import Shop
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.pipeline.model import find_mistakes

SOURCES = ["sqlserver", "db2", "oracle", "kafka"]
SINKS = ["kafka", "files", "delta", "iceberg", "jdbc"]
FORMATS = [
    "canal_json",
    "debezium_avro",
    "debezium_json",
    "dts_avro",
    "maxwell_json",
    "ogg_json",
    "qlik_avro",
    "qlik_json",
    "shareplex_json",
]


def headrace(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def checked(file: Path) -> str:
    code, text = headrace("check", str(file), "--level", "static")
    assert code == 0, text + file.read_text()
    return text


@pytest.fixture(autouse=True)
def no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_PASSWORD", raising=False)


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_with_every_sink_passes_the_check(tmp_path: Path, source: str) -> None:
    file = tmp_path / "my sales.yaml"
    sinks = [part for sink in SINKS for part in ("--sink", sink)]
    code, text = headrace("init", str(file), "--source", source, *sinks)
    assert code == 0, text
    assert f"from {source} to {', '.join(SINKS)}." in checked(file)
    assert f"Wrote {file}.\n" in text
    assert text.rstrip().endswith(f"check '{file}'")


def test_a_sink_alone_passes_the_check(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    for sink in SINKS:
        assert headrace("init", str(file), "--sink", sink, "--force")[0] == 0
        assert find_mistakes(file) == []


@pytest.mark.parametrize("source", ["sqlserver", "kafka"])
def test_every_format_passes_the_check(tmp_path: Path, source: str) -> None:
    file = tmp_path / "p.yaml"
    for format in FORMATS:
        code, text = headrace("init", str(file), "--source", source, "--sink", "files", "--format", format, "--force")
        assert code == 0, text
        assert find_mistakes(file) == []


def test_several_sinks_and_what_was_said(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    more = ["--sink", "kafka", "--sink", "delta", "--name", "sales: eu", "--no-ask"]
    options = [
        "-o",
        "hostname=db.example.com",
        "-o",
        "database=sales",
        "-o",
        "tables=dbo.a,dbo.b*",
        "-o",
        "snapshot.mode=no_data",
    ]
    assert headrace("init", str(file), *more, *options)[0] == 0
    checked(file)
    found = yaml.safe_load(file.read_text())
    assert found["source"]["tables"] == ["dbo.a", "dbo.b*"]
    assert found["source"]["snapshot_mode"] == "no_data"
    assert [sink["type"] for sink in found["sinks"]] == ["kafka", "delta"]
    assert (found["pipeline"]["name"], found["format"]["topic_prefix"]) == ("sales: eu", "sales: eu")


def test_options_are_taken_in_every_spelling_that_a_file_may_have(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    options = ["-obootstrap.servers=k:9092", "-otopics.pattern=shop[.].*", "-okafka.security.protocol=SSL"]
    code, text = headrace("init", str(file), "--source", "kafka", *options)
    assert code == 0, text
    checked(file)
    source = yaml.safe_load(file.read_text())["source"]
    assert {name: source[name] for name in source if name not in ("type", "format")} == {
        "bootstrap_servers": "k:9092",
        "topics_pattern": "shop[.].*",
        "kafka.security.protocol": "SSL",
    }


def test_the_password_is_a_reference_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.yaml"
    code, text = headrace("init", str(file), "--password-env", "SALES_PASSWORD")
    assert (code, "export SALES_PASSWORD=..." in text) == (0, True)
    assert "password" not in yaml.safe_load(file.read_text())["source"]
    monkeypatch.setenv("SALES_PASSWORD", "hunter2")
    code, text = headrace("init", str(file), "--password-env", "SALES_PASSWORD", "--force")
    assert (code, "SALES_PASSWORD" in text) == (0, False)
    assert yaml.safe_load(file.read_text())["source"]["password"] == "${env:SALES_PASSWORD}"
    assert "hunter2" not in file.read_text() + text
    checked(file)
    code, text = headrace("init", str(tmp_path / "q.yaml"), "-o", "password=hunter2")
    assert (code, "Option 'password' is a secret" in text, "hunter2" in text) == (2, True, False)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sits there."""
    monkeypatch.setattr("headrace.cli.init._on_terminal", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_it_asks_for_what_it_needs_and_enter_takes_what_is_offered(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    answers = ["postgresql", "db1", "shop", "", "hunter2", "kafka", "k:9092", ""]
    done = CliRunner().invoke(
        app, ["init", str(file)], input="\n".join(answers) + "\n", env={"HEADRACE_PASSWORD": None}
    )
    assert done.exit_code == 0, done.output
    found = yaml.safe_load(file.read_text())
    assert found["source"] == {
        "type": "postgresql",
        "hostname": "db1",
        "database": "shop",
        "user": "cdc",
        "password": "${env:HEADRACE_PASSWORD}",
    }
    assert found["sinks"] == [{"type": "kafka", "bootstrap_servers": "k:9092"}]
    assert "Set the password before a run: export HEADRACE_PASSWORD=..." in done.output
    assert "hunter2" not in file.read_text() + done.output


@pytest.mark.usefixtures("terminal")
def test_of_topics_it_asks_for_the_format_and_shows_where_unreadable_messages_can_go(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    answers = ["kafka", "k:9092", "shop.orders", "canal_json", "delta", ""]
    done = CliRunner().invoke(app, ["init", str(file)], input="\n".join(answers) + "\n")
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(file.read_text())["source"]["format"] == {"type": "canal_json"}
    file.write_text(file.read_text().replace("# dead_letter:", "dead_letter:"))
    checked(file)
    assert yaml.safe_load(file.read_text())["dead_letter"] == {"type": "files", "path": "./dead_letters"}


@pytest.mark.usefixtures("terminal")
def test_what_was_given_is_not_asked_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    given = [f"-o{name}={shop.options[name]}" for name in ("driver", "hostname", "database")]
    done = CliRunner().invoke(
        app, ["init", str(tmp_path / "p.yaml"), "--source", "sqlserver", "--sink", "delta", *given], input="\n\n\n"
    )
    assert done.exit_code == 0, done.output
    assert "hostname" not in done.stderr
    assert yaml.safe_load((tmp_path / "p.yaml").read_text())["source"]["tables"] == ["dbo.t"]


@pytest.mark.usefixtures("terminal")
def test_no_ask_asks_nothing(tmp_path: Path) -> None:
    code, text = headrace("init", str(tmp_path / "p.yaml"), "--no-ask")
    assert (code, "Where do" in text) == (0, False)


MISTAKES = [
    (["--source", "sqlsever"], "Unknown source 'sqlsever'. Did you mean 'sqlserver'?"),
    (["--sink", "detla"], "Unknown sink 'detla'. Did you mean 'delta'?"),
    (["--sink", "files", "--format", "canal"], "Unknown format 'canal'. Did you mean 'canal_json'?"),
    (["-o", "hostnam=db"], "Unknown option 'hostnam' for source 'sqlserver'. Did you mean 'hostname'?"),
    (["-o", "hostname"], "'hostname' is not an option. Write -o name=value"),
    (["-o", "snapshot_chunk_rows=many"], "Option 'snapshot_chunk_rows' can't be 'many'"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES, ids=[told[:30] for _, told in MISTAKES])
def test_a_mistake_is_one_sentence_and_writes_nothing(tmp_path: Path, arguments: list[str], told: str) -> None:
    code, text = headrace("init", str(tmp_path / "p.yaml"), *arguments)
    assert (code, told in text, text.count("\n")) == (2, True, 1), text
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("mine")
    code, text = headrace("init", str(file))
    assert (code, "exists. Choose another file, or use --force." in text, file.read_text()) == (2, True, "mine")


def test_it_can_be_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = headrace("init", "-")
    assert (code, "type: sqlserver" in text, list(tmp_path.iterdir())) == (0, True, [])


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.database.close()


def test_tables_are_found_where_the_source_can_be_asked(shop: Shop) -> None:
    shop.database.execute("CREATE TABLE dbo.[odd: name] (a int)")
    shop.database.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='odd: name', @role_name=NULL"
    )
    file = shop.folder / "p.yaml"
    server = [
        "-o",
        "driver=emulator",
        "-o",
        f"hostname={shop.folder / 'server'}",
        "-o",
        "database=shop",
        "-o",
        "user=cdc",
    ]
    code, text = headrace("init", str(file), *server)
    assert (code, "2 captured tables were found." in text) == (0, True), text
    assert sorted(yaml.safe_load(file.read_text())["source"]["tables"]) == ["dbo.odd: name", "dbo.t"]
    assert "- dbo.t   # key id; 1 column" in file.read_text()
    assert headrace("check", str(file), "--level", "privileges")[0] == 0
    code, text = headrace("init", str(file), *server, "--no-ask", "--force")
    assert "tables" not in yaml.safe_load(file.read_text())["source"]


def test_a_source_that_can_not_be_asked_is_told_and_the_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    code, text = headrace("init", str(file), "-o", "driver=emulator", "-o", "hostname=/nowhere", "-o", "database=shop")
    assert (code, "The tables are not known: Server '/nowhere' can't be reached" in text) == (0, True), text
    checked(file)
