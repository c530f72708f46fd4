"""Rule: what a run warns of, and what passes, is told with what to do about it, each once however often it comes."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterator

import pytest

from headrace.errors import ConnectError
from headrace.observe.troubles import Troubles

NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
LOST = ConnectError("Server 'db' closed the connection.", remedy="Check that it is up.")


@pytest.fixture
def troubles() -> Iterator[Troubles]:
    times = iter(range(1000))
    made = Troubles(lambda: NOON + dt.timedelta(seconds=next(times)))
    made.open()
    yield made
    made.close()


def test_warnings_of_the_log_are_collected_and_lesser_words_are_not(troubles: Troubles) -> None:
    logging.getLogger("headrace.sinks").warning("Table %s has %d small files.", "a", 9)
    logging.getLogger("headrace.sinks").info("All is well.")
    logging.getLogger("py4j").warning("Somebody else's.")
    [found] = troubles.recent()
    assert (found.sentence, found.remedy, found.times) == ("Table a has 9 small files.", "", 1)


def test_attempts_at_the_same_thing_are_one_trouble_with_its_remedy_apart(troubles: Troubles) -> None:
    for attempt in (1, 2):
        logging.getLogger("headrace.sources").warning("%s Trying again in %.1f seconds (%d).", LOST, attempt, attempt)
    [found] = troubles.recent()
    assert found.sentence == "Server 'db' closed the connection. Trying again in 2.0 seconds (2)."
    assert (found.remedy, found.times, found.at) == ("Check that it is up.", 2, NOON + dt.timedelta(seconds=1))


def test_the_newest_comes_last_and_only_so_many_are_kept(troubles: Troubles) -> None:
    for number in range(30):
        troubles.add(ConnectError(f"Error {number}."))
    troubles.add(ConnectError("Error 25."))
    found = troubles.recent()
    assert (len(found), troubles.count) == (20, 31)
    assert (found[-1].sentence, found[-1].times, found[0].sentence) == ("Error 25.", 2, "Error 10.")


def test_what_ends_a_run_is_told_apart(troubles: Troubles) -> None:
    troubles.add(ValueError("no"), fatal=True)
    assert [(found.sentence, found.fatal) for found in troubles.recent()] == [("ValueError: no", True)]


def test_a_closed_collection_collects_no_more() -> None:
    made = Troubles()
    made.open()
    made.close()
    logging.getLogger("headrace").warning("Late.")
    assert made.recent() == ()
