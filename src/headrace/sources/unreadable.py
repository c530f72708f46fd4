"""What happens to a change of the stream that can't be made a change row."""

from __future__ import annotations

from headrace.settings import Settings, option

FAIL, WARN, SKIP = "fail", "warn", "skip"


class UnreadableSettings(Settings):
    """Whether a change that can't be read stops the run."""

    unreadable_changes: str = option(
        "What happens to a change that can't be read, because a value can't be converted or the server can't print "
        "it: `fail` stops the run; `warn` leaves it out and logs its position; `skip` leaves it out. A change that was "
        "left out is an `error` row, is counted, and `headrace status` reports it. A row of a snapshot that can't be "
        "read always stops the run.",
        default=FAIL,
        choices=(FAIL, WARN, SKIP),
        aliases=("event.processing.failure.handling.mode",),
    )
