"""A statement that is run in the source with each heartbeat. In the driver, once for each heartbeat that is planned:
neither executors nor a replay run it.
"""

from __future__ import annotations

import logging

from headrace.errors import HeadraceError, OptionError
from headrace.settings import Settings
from headrace.sources.base import Source

_LOG = logging.getLogger("headrace.sources")


class HeartbeatAction:
    """Runs the statement of `heartbeat_action_query`. What it changes comes with the next batch, like any change.

    Args:
        settings: the source's options.

    Raises:
        OptionError: there is a statement and no heartbeat.
    """

    def __init__(self, settings: Settings) -> None:
        self._statement: str = settings.get("heartbeat_action_query", "")
        self._failed: dict[str, str] = {}
        if self._statement and not settings.get("heartbeat_interval_ms"):
            raise OptionError(
                "Option 'heartbeat_action_query' needs heartbeats.", remedy="Set 'heartbeat_interval_ms', too."
            )

    def run(self, name: str, source: Source) -> None:
        """Run it in one database. An error is logged where it is another one than before, and the stream goes on.

        Args:
            name: the database.
            source: its source.
        """
        if not self._statement:
            return
        try:
            source.execute(self._statement)
        except HeadraceError as error:
            if self._failed.get(name) != error.message:
                self._failed[name] = error.message
                _LOG.warning(
                    "The statement of 'heartbeat_action_query' failed in database '%s', and the stream goes on: %s "
                    "Correct the statement, or let the login do what it does.",
                    name,
                    error.message,
                )
        else:
            if self._failed.pop(name, None) is not None:
                _LOG.warning("The statement of 'heartbeat_action_query' runs again in database '%s'.", name)
