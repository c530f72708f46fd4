"""Rule: a command that fails says one sentence; on a terminal it also names the page that explains such errors."""

from __future__ import annotations

import inspect
import io
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from headrace import errors
from headrace.cli.failure import errors_reported, sentence_of
from headrace.spark.session import _QUERY_LOGGERS, silence

DOCS = Path(__file__).parents[2] / "docs"
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("error", "terminal", "code", "said"),
    [
        (errors.OptionError("No 'x'.", remedy="Use 'y'."), False, 2, "No 'x'. Use 'y'.\n"),
        (errors.OptionError("No 'x'.", remedy="Use 'y'."), True, 2,
         "No 'x'. Use 'y'.\nMore: docs/reference/options.md\n"),
        (errors.FileError("p.yaml", 3, "No 'x'."), True, 2, "p.yaml, line 3: No 'x'.\nMore: docs/check.md\n"),
        (RuntimeError("boom"), True, 1, "An unexpected error stopped Headrace (RuntimeError): boom "
         "Run it again with --debug for the stack trace.\n"),
    ],
)  # fmt: skip
def test_an_error_ends_in_its_sentence_and_on_a_terminal_in_its_page(
    error: Exception, terminal: bool, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(terminal)
    monkeypatch.setattr("sys.stderr", screen)
    with pytest.raises(typer.Exit) as ended, errors_reported(False):
        raise error
    assert ended.value.exit_code == code
    assert screen.getvalue() == said


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_page_of_an_error_is_there(kind: type[errors.HeadraceError]) -> None:
    file, _, section = kind.page.partition("#")
    headings = [
        line.lstrip("# ").lower().replace(" ", "-").replace("'", "")
        for line in (DOCS / file).read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]
    assert not section or section in headings


def test_what_pyspark_logs_of_failed_queries_stays_off_the_console() -> None:
    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    before, levels = [logger.level for logger in loggers], []
    try:
        silence(SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=levels.append)))  # type: ignore[arg-type]
        assert not any(logger.isEnabledFor(logging.ERROR) for logger in loggers)
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
    assert levels == ["OFF"]
    # PySpark writes to these and to no other ones.
    logged = re.findall(r'getLogger\("(\w+)"\)', inspect.getsource(PySparkException._log_exception))
    assert sorted(logged) == sorted(_QUERY_LOGGERS)


def test_each_table_that_met_an_error_has_a_line() -> None:
    error = errors.SchemaError("No 'a'.")
    error.others = (errors.SinkError("No 'b'.", remedy="Use 'c'."),)
    assert sentence_of(error)[:2] == ("No 'a'.\nNo 'b'. Use 'c'.", 2)
