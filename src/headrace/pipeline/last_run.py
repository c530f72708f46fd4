"""In what form the last run of a checkpoint read and wrote, and by which release, kept beside Spark's own files.

So `headrace check` can say that the next one would go on in another, and an earlier release which finds something that
it does not know can say whose it is. Nothing depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.observe.kept_offsets import RELEASE
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import Model
from headrace.pipeline.target import Target
from headrace.versions import __version__

_ANY_TABLE = TableId("database", "schema", "table")
_SOURCE = "source"


def forms(model: Model) -> dict[str, str]:
    """The format, and the topics, of the source and of each sink that has messages."""
    found = {target.label: _form(target, model.source_type) for target in model.targets if target.format is not None}
    if isinstance(model.source, KafkaTopics):
        found[_SOURCE] = model.source.format.name
    return found


def to_text(model: Model) -> str:
    """The file's content."""
    return json.dumps({RELEASE: __version__, **forms(model)}, ensure_ascii=False, sort_keys=True)


def differences(model: Model, text: str | None) -> list[str]:
    """What the next run would do in another form than the last one, as sentences."""
    try:
        before = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return []
    if not isinstance(before, Mapping):
        return []
    found = []
    for label, now in forms(model).items():
        was = before.get(label, now)
        if was != now and label == _SOURCE:
            found.append(f"The last run read the topics as {was}, the next one would read them as {now}.")
        elif was != now:
            found.append(f"The last run wrote {was} to {label}, the next one would write {now}.")
    return found


def _form(target: Target, connector: str) -> str:
    assert target.format is not None
    try:
        topic = target.format.topic_for(_ANY_TABLE, connector)
    except OptionError:
        topic = None
    return target.format.name if topic is None else f"{target.format.name} with topics like {topic}"
