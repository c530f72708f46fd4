"""Rule: a mask changes every value as its option says, and nothing but the value; a salt is never shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import OptionError
from headrace.options import REDACTED
from headrace.sources.sqlserver.options import SqlServerSettings
from headrace.sources.sqlserver.types import NativeType
from headrace.sources.tables.masks import Masks, serialized

SALT = "CzQMA0cB5K"
VARCHAR = NativeType("varchar", 100, 0, 0)


def settings(**options):
    return SqlServerSettings.parse({"hostname": "x", "database": "d", **options}, owner="source 'sqlserver'")


def masked(values, native=VARCHAR, **options):
    column = Column("c", 1, native.logical, native.name)
    schema = TableSchema(TableId("d", "dbo", "t"), (column,))
    [result] = Masks.of(settings(**options)).of_table(schema, (native,)).apply([pa.array(values, pa.string())])
    assert result.type == pa.string()
    return result.to_pylist()


# Made with java.io.ObjectOutputStream and java.security.MessageDigest of Java 17.
JAVA = [
    ("customer", "390662391d2a44ec3eb32320cea85ea9218586670dd20a3ba06bf7304d27ddbc"),
    ("", "7b061bc77caec9afdc6b986ab6c4de894d58006b32ac0f7ea728404a5cf3a9e5"),
    ("Zo\u00eb \u65e5\u672c \U0001f600", "56ac9c595f1b4a4bae19eb4b577a70c79b3925ce2da09736ac6a29055cd3bd67"),
    ("a\0b", "7a4e0b6193a8e8b07915879af5d44e8a0e21f873107f348336246570a1eb7a54"),
    ("x" * 70_000, "21042a3875b47dd8220328aaae40017a2549733682fadda8e245c213391dc13f"),
    ("\u00e9" * 32_768, "35f9d430c6c41aa2a95b64d43532fdc0e5bd1e23a21351ef28cac589cefa73c9"),
]


def test_the_first_version_of_the_hash_is_that_of_the_value_as_java_serialises_it():
    name = f"column.mask.hash.SHA-256.with.salt.{SALT}"
    texts = [text for text, _ in JAVA]
    assert masked([*texts, None, texts[0]], **{name: "dbo.t.c"}) == [*(h for _, h in JAVA), None, JAVA[0][1]]
    assert serialized("ab") == b"\xac\xed\x00\x05t\x00\x02ab"


def test_hashes_are_cut_to_the_length_of_the_column():
    name = f"column.mask.hash.SHA-256.with.salt.{SALT}"
    assert masked(["customer"], NativeType("nvarchar", 20, 0, 0), **{name: "dbo.t.c"}) == ["390662391"[:8] + "1d"]
    assert masked(["customer"], NativeType("nvarchar", -1, 0, 0), **{name: "dbo.t.c"}) == [JAVA[0][1]]


@pytest.mark.parametrize(
    ("option", "values", "wanted"),
    [
        ("column.mask.with.3.chars", ["", "abcdef", None], ["***", "***", None]),
        ("Column.Mask.With.0.Chars", ["x", None], ["", None]),
        (
            "column.truncate.to.2.chars",
            ["", "a", "abc", "\U0001f600\u00e9x", None],
            ["", "a", "ab", "\U0001f600\u00e9", None],
        ),
    ],
)
def test_masks_and_truncation(option, values, wanted):
    assert masked(values, **{option: "dbo.t.c"}) == wanted
    assert masked(values, **{option: "dbo.t.other"}) == values


@pytest.mark.parametrize("name", ["xml", "uniqueidentifier", "char", "nchar", "ntext", "text"])
def test_all_types_of_characters_can_be_masked(name):
    native = NativeType(name, 16, 0, 0)
    assert masked(["x"], native, **{"column.mask.with.1.chars": "d.dbo.t.c"}) == ["*"]


@pytest.mark.parametrize("name", ["int", "varbinary", "date", "decimal", "bit", "hierarchyid", "datetimeoffset"])
@pytest.mark.parametrize("option", ["column.mask.with.1.chars", "column.truncate.to.1.chars"])
def test_other_types_are_refused(name, option):
    with pytest.raises(OptionError, match="has no characters"):
        masked(["x"], NativeType(name, 8, 9, 0), **{option: "dbo.t.c"})


def test_a_salt_that_may_have_lost_its_capital_letters_is_refused():
    with pytest.raises(OptionError, match="'column_mask_salt'") as error:
        settings_masks(f"column.mask.hash.v2.sha-256.with.salt.{SALT.lower()}")
    assert SALT.lower() not in str(error.value)
    settings_masks("column.mask.hash.v2.sha-256.with.salt.0815-4711")


def test_a_salt_in_the_name_and_apart_must_be_one():
    with pytest.raises(OptionError, match="another salt"):
        settings_masks("column.mask.hash.v2.sha-256.with.salt.Abc", column_mask_salt="Abd")
    settings_masks("column.mask.hash.v2.sha-256.with.salt.abc", column_mask_salt="Abc")


def settings_masks(name, **more):
    return Masks.of(settings(**{name: "dbo.t.c"}, **more))


def test_salts_are_shown_nowhere():
    name = f"column.mask.hash.v2.SHA-256.with.salt.{SALT}"
    shown = repr(settings(**{name: "dbo.t.c"}, column_mask_salt=SALT))
    assert SALT not in shown
    assert f"with.salt.{REDACTED}" in shown
    with pytest.raises(OptionError) as error:
        settings(**{f"column.musk.hash.v2.SHA-256.with.salt.{SALT}": "x"})
    assert SALT not in str(error.value)
