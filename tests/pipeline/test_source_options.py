"""Rule: options of a source that are mappings or hold secrets in their names may stand in a pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import OptionError
from headrace.options import as_text
from headrace.pipeline.model import Model, read_model
from headrace.sources.sqlserver.source import SqlServerSource

SALT = "CzQMA0cB5K"
REST = "sinks: [{type: list_changes, path: ./lake}]\npipeline: {name: sales, checkpoint: ./state}\n"


def model(folder: Path, options: str) -> Model:
    file = folder / "p.yaml"
    file.write_text(f"source:\n  type: sqlserver\n  hostname: there\n  database: shop\n{options}{REST}")
    return read_model(file)


def test_a_salt_in_the_name_of_an_option_is_shown_nowhere(tmp_path: Path) -> None:
    read = model(tmp_path, f"  column.mask.hash.v2.SHA-256.with.salt.{SALT}: dbo.t.email\n")
    assert SALT not in repr(read) + repr(read.source.settings)
    assert SALT not in read.hide(f"Something failed: {SALT}.")
    assert read.hide("dbo.t.email") == "dbo.t.email"


def test_an_error_of_such_an_option_does_not_show_it(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as error:
        model(tmp_path, f"  column.mask.hash.v2.ROT.with.salt.{SALT}: dbo.t.email\n")
    assert SALT not in str(error.value)
    assert "ROT" in str(error.value)


def test_mappings_and_lists_reach_the_source_through_sparks_texts(tmp_path: Path) -> None:
    read = model(
        tmp_path,
        "  snapshot_select_statement_overrides:\n    dbo.t: SELECT * FROM dbo.t WHERE a > 1, 2\n"
        "  message_key_columns:\n    dbo.t: [b, a]\n"
        "  tables: ['re:dbo\\.ab{1,2}', 'dbo.a,b', 'dbo.[xy]']\n",
    )
    through_spark = {name: as_text(value) for name, value in read.source_options.items()}
    reached = SqlServerSource.parse(through_spark)
    assert reached == read.source.settings
    assert reached.tables == (r"re:dbo\.ab{1,2}", "dbo.a,b", "dbo.[xy]")
    assert reached.message_key_columns == (r"dbo.t\.b", r"dbo.t\.a")


@pytest.mark.parametrize("salt", [SALT, SALT.lower(), SALT.upper()])
def test_a_salt_in_a_name_keeps_its_letters_on_the_way_through_spark(tmp_path: Path, salt: str) -> None:
    read = model(tmp_path, f"  column.mask.hash.v2.SHA-256.with.salt.{salt}: dbo.t.email\n")
    # Spark makes names lower-case.
    through_spark = {name.lower(): as_text(value) for name, value in read.source_options.items()}
    [source, reached] = [SqlServerSource.of(options) for options in (read.source_options, through_spark)]
    assert source.settings.column_mask_salt == reached.settings.column_mask_salt == salt


def test_two_salts_are_refused_with_the_file(tmp_path: Path) -> None:
    options = "".join(f"  column.mask.hash.v2.SHA-256.with.salt.{salt}: dbo.t.{salt}\n" for salt in ("aB", "aC"))
    with pytest.raises(OptionError, match=r"line 6: Options '.*redacted\)' and '.*redacted\)' name different salts\."):
        model(tmp_path, options)
