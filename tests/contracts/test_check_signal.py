"""Rule: what a signal asks for is looked at before it is sent: a table that is not captured, one that has no key to cut
it by, and a filter that the server refuses are errors. The same for every source, on the emulated databases."""

from __future__ import annotations

import json

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.errors import OptionError
from headrace.sources.signals import Signal


@pytest.fixture(scope="module", params=[SqlServerDatabase, Db2Database, OracleDatabase], ids=lambda kind: kind.source)
def database(request, tmp_path_factory):
    with closing(request.param(tmp_path_factory.mktemp("server"))) as made:
        made.create("t", "id int not null primary key, n int", [(1, 1)])
        made.create("keyless", "n int", [(1,)])
        yield made


def check(database, table, filter=None, type="execute-snapshot", kind="incremental"):
    data = {"data-collections": [table], "type": kind}
    if filter is not None:
        data["additional-conditions"] = [{"data-collection": table, "filter": filter}]
    database.run().source.check_signal(Signal("s", type, json.dumps(data)))


@pytest.mark.parametrize("filter", [None, "n > 1", "n > 1 -- all of them", "1 / n > 0"])
def test_what_can_be_followed_is_no_error(database, filter):
    check(database, database.named("t"), filter)


def test_a_blocking_snapshot_needs_no_key(database):
    check(database, database.named("keyless"), kind="blocking")
    with pytest.raises(OptionError, match=r"(?i)Table '\w+\.keyless' can't be read beside the stream: it has no key"):
        check(database, database.named("keyless"))


@pytest.mark.parametrize("type", ["execute-snapshot", "stop-snapshot"])
def test_a_table_that_is_not_captured_is_named(database, type):
    with pytest.raises(OptionError, match=r"No captured table matches 'shop\.other'") as caught:
        check(database, "shop.other", type=type)
    assert database.named("t") in caught.value.remedy


@pytest.mark.parametrize("filter", ["n >", "nothing > 1", "n > 1)", "n > 1 ORDER BY n"])
def test_a_filter_that_the_server_refuses_is_an_error(database, filter):
    with pytest.raises(OptionError, match=r"(?i)^The server refuses the filter of table '\w+\.t': "):
        check(database, database.named("t"), filter)
