"""Rule: every block of code in the documentation is true. Pipelines load, commands and their options exist, packages
have the extras that are asked for, and Python, SQL and data can be read. What a program prints is marked `text`, or
stands below a line with `$ `. Other tests run them: this one holds which."""

from __future__ import annotations

import ast
import configparser
import doctest
import functools
import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import yaml
from tests.support.code_blocks import BLOCKS, PAGES, ROOT, Block
from tests.support.typed_commands import WrongUse, parse

from headrace.pipeline.model import find_mistakes

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

COMMANDS, PROGRAMS_OF_PAGES = "tests/docs/test_command_blocks.py", "tests/docs/test_python_blocks.py"
RUN = {
    ("README.md", "python"): PROGRAMS_OF_PAGES,
    ("README.md", "sh"): COMMANDS,
    ("docs/apply.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/apply.md", "sh"): COMMANDS,
    ("docs/apply.md", "sql"): "tests/sinks/test_changes_clause.py",
    ("docs/check.md", "console"): COMMANDS,
    ("docs/clusters.md", "sh"): COMMANDS,
    ("docs/completeness.md", "console"): COMMANDS,
    ("docs/completeness.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/concepts/change-row.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/convert.md", "sh"): COMMANDS,
    ("docs/decisions/0027-settings.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/deploy.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/deploy.md", "sh"): COMMANDS,
    ("docs/emulator.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/emulator.md", "sh"): COMMANDS,
    ("docs/index.md", "sh"): COMMANDS,
    ("docs/inspect-messages.md", "sh"): COMMANDS,
    ("docs/reference/mysql.md", "sql"): COMMANDS,
    ("docs/reference/oracle-redo.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/reference/postgresql.md", "sql"): COMMANDS,
    ("docs/reference/python.md", "python"): PROGRAMS_OF_PAGES,
    ("docs/reference/sqlserver-signals.md", "sh"): COMMANDS,
    ("docs/reference/sqlserver-signals.md", "sql"): COMMANDS,
    ("docs/repairs.md", "console"): COMMANDS,
    ("docs/repairs.md", "sh"): "tests/docs/test_repairs_page.py",
    ("docs/routes-and-transforms.md", "python"): "tests/pipeline/test_two_sinks.py",
    ("docs/tutorials/db2_and_oracle.md", "python"): "tests/streaming/test_read_stream_db2_and_oracle.py",
    ("docs/tutorials/feed_to_tables.md", "python"): "tests/sinks/test_feed_to_tables.py",
    ("docs/tutorials/kafka_to_delta.md", "python"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/kafka_to_delta.md", "sh"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/mysql.md", "python"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/mysql.md", "sh"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/mysql.md", "sql"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/postgresql.md", "python"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/postgresql.md", "sh"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/postgresql.md", "sql"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/read_feed.md", "python"): "tests/formats/test_read_feed.py",
    ("docs/tutorials/read_stream.md", "python"): "tests/streaming/test_read_stream.py",
    ("docs/unreadable-messages.md", "sh"): COMMANDS,
    ("docs/upgrades.md", "sh"): "tests/compat/test_upgrade_steps.py",
    ("docs/watching.md", "sh"): COMMANDS,
    ("docs/write-your-own.md", "python"): "tests/docs/test_write_your_own.py",
    ("docs/write-your-own.md", "sh"): "tests/docs/test_write_your_own.py",
    ("docs/write-your-own.md", "yaml"): "tests/docs/test_write_your_own.py",
}
"""Blocks that a test runs, by page and kind, and the test, which names the page."""
INSTALLS = "it installs; `make test` begins with the same"
NOT_HERE = "it needs servers of the reader's, or Docker"
NOT_RUN = {
    ("CONTRIBUTING.md", "make setup"): "it runs all tests",
    ("CONTRIBUTING.md", "python3.11 -m venv"): INSTALLS,
    ("README.md", "make demo"): "it runs all tests; tests/cli/test_demo_command.py runs the demo",
    ("docs/demo.md", "make demo"): "tests/cli/test_demo_command.py runs the demo without make",
    ("docs/demo.md", 'make demo ARGS="--seconds'): "tests/cli/test_demo_command.py runs the demo without make",
    ("docs/deploy.md", "spark-submit"): "it needs a cluster",
    ("docs/index.md", "make setup"): INSTALLS,
    ("docs/live.md", "export ACCEPT_EULA=Y MSSQL_SA_PASSWORD='choose-0ne' LICENSE"): NOT_HERE,
    ("docs/live.md", "export HEADRACE_POSTGRESQL_URL"): NOT_HERE,
    ("docs/live.md", "export ACCEPT_EULA=Y MSSQL_SA_PASSWORD='choose-0ne'\ndocker"): NOT_HERE,
    ("docs/live.md", ".venv/bin/pip install ibm_db"): NOT_HERE,
    ("docs/live.md", "export HEADRACE_ORACLE_URL"): NOT_HERE,
    ("docs/real-producers.md", "apt-get"): "it installs servers; `make test-real` is what it says",
    ("docs/reference/sqlserver-permissions.md", "CREATE LOGIN"): "the emulator has no logins",
    ("docs/tutorials/kafka_to_delta.md", "pip install"): INSTALLS,
    ("docs/tutorials/mysql.md", "pip install"): INSTALLS,
    ("docs/tutorials/postgresql.md", "pip install"): INSTALLS,
    ("docs/tutorials/read_stream.md", "spark-pipelines"): "tests/streaming/test_read_stream_declarative.py runs it",
    ("docs/upgrades.md", "python -W error"): "it runs the reader's own tests",
}
"""Blocks that no test runs, by page and how they begin, and why. They are looked at all the same."""

PROGRAMS = {
    ".", "apt-get", "cat", "cd", "cp", "docker", "kcat", "pip", "pre-commit", "pytest", "python", "python3.11",
    "spark-pipelines", "spark-submit", "tar", "true",
}  # fmt: skip
"""What commands may call besides Headrace and make."""

DIALECTS = {"mysql": "mysql", "postgresql": "postgres", "sqlserver-permissions": "tsql", "sqlserver-signals": "tsql"}
MINIMAL = {
    "source": {"type": "sqlserver", "hostname": "db", "database": "sales", "user": "cdc", "password": "x"},
    "sinks": [{"type": "delta", "path": "./lake"}],
    "pipeline": {"name": "sales", "checkpoint": "./checkpoint"},
}
"""What is put around a part of a pipeline."""


def of_kind(*kinds: str) -> Any:
    run = {given for given in RUN if given[1] in ("sql", "yaml")}
    found = [block for block in BLOCKS if block.kind in kinds and (block.page, block.kind) not in run]
    return pytest.mark.parametrize("block", [pytest.param(block, id=str(block)) for block in found])


def test_every_block_says_what_it_is() -> None:
    known = {"console", "ini", "json", "python", "sh", "sql", "text", "toml", "yaml"}
    assert len(BLOCKS) > 100
    assert [str(block) for block in BLOCKS if block.kind not in known] == []


@pytest.mark.parametrize(("block", "test"), RUN.items(), ids=str)
def test_what_runs_a_block_names_its_page(block: tuple[str, str], test: str) -> None:
    assert Path(block[0]).name in (ROOT / test).read_text(encoding="utf-8")
    assert block in {(given.page, given.kind) for given in BLOCKS}


def test_every_block_is_run_or_it_is_said_why_not() -> None:
    code = [block for block in BLOCKS if block.kind in ("console", "python", "sh", "sql")]
    left = {key: [block for block in code if block.page == key[0] and block.text.startswith(key[1])] for key in NOT_RUN}
    assert [key for key, found in left.items() if not found] == []
    excused = {block for found in left.values() for block in found}
    assert [str(block) for block in code if not is_run(block) and block not in excused] == []


def is_run(block: Block) -> bool:
    """Whether a test runs it: one that counts the blocks of its page, or one that names this block by its beginning."""
    test = RUN.get((block.page, block.kind))
    if test not in (COMMANDS, PROGRAMS_OF_PAGES):
        return test is not None
    whole_pages = ("docs/reference/oracle-redo.md", "docs/reference/python.md")
    return block.page in whole_pages or any(block.text.startswith(text) for text in texts_of(test))


@functools.cache
def texts_of(test: str) -> set[str]:
    """The texts in the code of a test that may be the beginning of a block."""
    found = ast.walk(ast.parse((ROOT / test).read_text(encoding="utf-8")))
    texts = {one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return {text for text in texts | {f"$ {text}" for text in texts} if len(text) > 8}


@of_kind("yaml")
def test_pipelines_load(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = yaml.safe_load(block.text)
    if isinstance(given, list):
        given = {"sinks": given}
    elif not given.keys() & {"source", "sink", "sinks", "format", "dead_letter", "observe", "pipeline", "transforms"}:
        given = {"source": MINIMAL["source"] | given}
    for name in re.findall(r"\$\{env:(\w+)\}", block.text):
        monkeypatch.setenv(name, "x")
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(MINIMAL | given), encoding="utf-8")
    assert [str(mistake) for mistake in find_mistakes(file)] == []


@of_kind("python")
def test_python_can_be_read(block: Block) -> None:
    examples = doctest.DocTestParser().get_examples(block.text)
    for part in [example.source for example in examples] or [block.text]:
        ast.parse(part)


@of_kind("sql")
def test_sql_can_be_read(block: Block) -> None:
    statements = sqlglot.parse(block.text, dialect=DIALECTS.get(Path(block.page).stem, "spark"))
    assert statements and None not in statements


@of_kind("json", "toml", "ini")
def test_data_can_be_read(block: Block) -> None:
    if block.kind == "json":
        json.loads(block.text)
    elif block.kind == "toml":
        tomllib.loads(block.text)
    else:
        configparser.ConfigParser(allow_no_value=True).read_string(block.text)


@of_kind("sh", "console")
def test_commands_exist_and_take_their_arguments(block: Block) -> None:
    found = list(commands(block))
    assert found
    for words in found:
        check(words)


@pytest.mark.parametrize(
    "line",
    [
        "headrace runn pipeline.yaml",
        "headrace run pipeline.yaml --onse",
        "headrace run",
        "headrace repair mend pipeline.yaml",
        "make everything",
        "python -m headrace.nothing",
        "pip install 'headrace[emulator]'",
        "cat messages | headrace decode --formats canal_json",
        "nobody knows",
    ],
)
def test_a_command_that_is_wrong_is_found(line: str) -> None:
    with pytest.raises((WrongUse, AssertionError)):
        for words in commands(Block("docs/x.md", 1, "sh", line)):
            check(words)


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block, each as its words, without what stands around it."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if any(line.lstrip().startswith("$ ") for line in lines):
        lines = [line.lstrip().removeprefix("$ ") for line in lines if line.lstrip().startswith("$ ")]
    for line in lines:
        shell = shlex.shlex(line, posix=True, punctuation_chars=True)
        shell.whitespace_split = True
        words: list[str] = []
        for word in [*shell, ";"]:
            if not re.fullmatch(r"[();<>|&]+", word):
                words.append(word)
            elif words:
                yield from called(words)
                # Behind these stands a file, not a command.
                words = ["cat"] if word[0] in "<>" else []


def called(words: list[str]) -> Iterator[list[str]]:
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    if words and words[0] != "export":
        yield words


def check(words: list[str]) -> None:
    program, *rest = words
    program = program.rpartition("/")[2]
    if program == "headrace":
        parse(rest)
    elif program == "make":
        assert {word for word in rest if "=" not in word} <= TARGETS, words
    else:
        assert program in PROGRAMS, words
    if rest[:1] == ["-m"] and program.startswith("python") and rest[1].startswith("headrace"):
        assert importlib.util.find_spec(rest[1]), words
    if "install" in rest:
        for extras in re.findall(r"\[([\w,]+)\]", " ".join(rest)):
            assert set(extras.split(",")) <= EXTRAS.keys(), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_extras_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"(?:\bheadrace|'\.)\[([\w,]+)\]", page.read_text(encoding="utf-8"))
    assert {extra for extras in named for extra in extras.split(",")} <= EXTRAS.keys()
