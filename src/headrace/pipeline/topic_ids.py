"""Which topics the offsets of a checkpoint are of.

A topic that was deleted and made again has the old name, and other messages under the same offsets. Nothing but the id
that Kafka gives each topic shows it once the new one holds as many messages. So the ids are kept in the checkpoint,
beside the offsets, and compared at the start and with every batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from headrace.errors import DataLossError
from headrace.observe.kept_offsets import topic_ids_text

_LOG = logging.getLogger("headrace.pipeline")
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What the client says of topics of brokers before 2.8, which have no ids."""


class TopicIds:
    """The topics that a run reads, compared with those that its checkpoint was filled from. Runs in the driver.

    Args:
        ask: gives the id of every topic now.
        kept: the ids in the checkpoint; none in one of an earlier release, which goes on with what it finds.
        keep: writes their text into the checkpoint.
        fail_on_data_loss: whether a topic that was made again stops the run; else the log says it once.
    """

    def __init__(
        self,
        ask: Callable[[], Mapping[str, str]],
        kept: Mapping[str, str],
        keep: Callable[[str], None],
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self._ask = ask
        self._kept = dict(kept)
        self._keep = keep
        self._fails = fail_on_data_loss

    def confirm(self) -> Mapping[str, str]:
        """The ids of all topics now. Asked after a batch was read, they are those of what was read: none comes back.

        Raises:
            DataLossError: a topic was made again.
            ConnectError: Kafka can't be asked.
        """
        now = self._ask()
        again = made_again(self._kept, now)
        if again:
            lost = loss(again)
            if self._fails:
                raise lost
            _LOG.warning("%s", lost.message)
        known = {**self._kept, **{topic: id for topic, id in now.items() if id != _NO_ID}}
        if known != self._kept:
            self._keep(topic_ids_text(known))
            self._kept = known
        return now


def made_again(kept: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The topics that have another id now; one without an id is not known."""
    return sorted(topic for topic, id in kept.items() if now.get(topic, _NO_ID) not in (_NO_ID, id))


def loss(topics: Iterable[str]) -> DataLossError:
    """What is wrong where topics were made again."""
    first, *others = topics
    more = f", and so were {len(others)} others" if len(others) > 1 else f", and so was '{others[0]}'" if others else ""
    return DataLossError(
        f"Topic '{first}' was deleted and made again since this checkpoint read it{more}. The offsets in the "
        "checkpoint count messages of the old topic.",
        remedy="Read the topic with a new checkpoint. With the source's option fail_on_data_loss: false the run goes "
        "on at the old offsets, and does not read what the new topic has before them.",
    )
