"""Rule: every block of code in the documentation is true. Pipelines load, commands and their options exist, packages
have the extras that are asked for, and Python, SQL and data can be read. What a program prints is marked `text`, or
stands below a line with `$ `."""

from __future__ import annotations

import ast
import configparser
import doctest
import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlglot
import yaml
from tests.support.typed_commands import WrongUse, parse

from headrace.pipeline.model import find_mistakes

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

RUN = {
    ("docs/apply.md", "sql"): "tests/sinks/test_changes_clause.py",
    ("docs/tutorials/mysql.md", "sql"): "tests/docs/test_database_tutorials.py",
    ("docs/tutorials/postgresql.md", "sql"): "tests/docs/test_database_tutorials.py",
    ("docs/write-your-own.md", "yaml"): "tests/docs/test_write_your_own.py",
}
"""Blocks that can't be checked here, by page and kind, and the test that runs them and names the page."""

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


class Block(NamedTuple):
    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            yield Block(str(page.relative_to(ROOT)), text[: found.start()].count("\n") + 1, found[2], found[3])


BLOCKS = list(blocks())


def of_kind(*kinds: str) -> Any:
    found = [block for block in BLOCKS if block.kind in kinds and (block.page, block.kind) not in RUN]
    return pytest.mark.parametrize("block", [pytest.param(block, id=str(block)) for block in found])


def test_every_block_says_what_it_is() -> None:
    known = {"console", "ini", "json", "python", "sh", "sql", "text", "toml", "yaml"}
    assert len(BLOCKS) > 100
    assert [str(block) for block in BLOCKS if block.kind not in known] == []


@pytest.mark.parametrize(("block", "test"), RUN.items())
def test_what_is_not_checked_here_is_run_by_a_test_that_names_the_page(block: tuple[str, str], test: str) -> None:
    assert Path(block[0]).name in (ROOT / test).read_text(encoding="utf-8")
    assert block in {(given.page, given.kind) for given in BLOCKS}


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
