"""The properties of one connector, each taken once or listed as left out, with the reason; secrets become
references."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from headrace.convert.connector_file import ConnectorConfig
from headrace.options import is_secret, shown_name

Why = Literal["unknown", "not needed", "not supported"]

_PRIVATE_KEY = "ssl.keystore.key"
_GENERAL = re.compile(r"debezium\.format\.(?!(?:key|value|header)(?:\.|$))")
# `${provider:path:key}` of Kafka Connect's config providers.
_OF_CONNECT = re.compile(r"\$\{([A-Za-z]\w*):([^}]*)\}")
# `${NAME}`, `${some.property}` and `${NAME:default}` of Quarkus; the one name that Debezium fills in stays.
_OF_QUARKUS = re.compile(r"\$\{(?!database\.server\.name\})([A-Za-z_][\w.]*)(?::([^}]*))?\}")


@dataclass(frozen=True)
class Left:
    """A property that is not in the pipeline file.

    Args:
        name: as it stands in the input, without secrets.
        why: whether it is unknown, not needed, or means something that can't be done.
        reason: a clause.
    """

    name: str
    why: Why
    reason: str

    def __str__(self) -> str:
        text = f"{self.name}: {self.why}{' because ' if self.why == 'not needed' else '; '}{self.reason}"
        return " ".join(text.split()) + ("" if text.endswith(("?", "!")) else ".")


class Properties:
    """What a file says, and what was found out on the way.

    Args:
        config: the file.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config
        self.left: list[Left] = []
        self.environment: dict[str, str] = {}
        """Variables to set before a run, each with what it holds."""
        self.notes: list[str] = []
        # What Debezium Server says of all converters gives way to what it says of one.
        general = [p for p in config.properties if _GENERAL.match(p.given)]
        special = [p for p in config.properties if not _GENERAL.match(p.given)]
        self._open = {p.name: p for p in (*general, *special)}
        self._done: set[str] = set()
        special_names = {p.name for p in special}
        for entry in general:
            if (
                entry.name in special_names
                and f"value{entry.name.removeprefix('key')}" in special_names
                and entry.given not in self._done
            ):
                self._done.add(entry.given)
                self.left.append(
                    Left(shown_name(entry.given), "not needed", "keys and values have settings of their own")
                )

    def take(self, name: str) -> str | None:
        """The value of a property, which is then done with; None where it is not given."""
        entry = self._open.pop(name, None)
        if entry is None:
            return None
        self._done.add(entry.given)
        return entry.value

    def peek(self, name: str) -> str | None:
        """The value of a property that is looked at again later."""
        entry = self._open.get(name)
        return entry.value if entry else None

    def names(self, prefix: str = "") -> list[str]:
        """The properties that are not done with whose names begin so, in the order of the file."""
        return list(
            dict.fromkeys(p.name for p in self.config.properties if p.name in self._open and p.name.startswith(prefix))
        )

    def leave(self, name: str, why: Why, because: str) -> None:
        """Tell why a property is not carried over."""
        entry = self._open.pop(name)
        if entry.given not in self._done:
            self._done.add(entry.given)
            self.left.append(Left(shown_name(entry.given), why, because.rstrip(".")))

    def leave_usual(self, name: str, usual: Iterable[str]) -> bool:
        """Leave a property whose value asks for what is done anyway; whether it is one."""
        value = (self.peek(name) or "").strip().lower()
        if value not in {text.lower() for text in usual}:
            return False
        self.leave(name, "not needed", "it says what is done anyway")
        return True

    def given(self, name: str) -> str:
        """How the file calls a property, fit to be shown."""
        return shown_name(self._open[name].given) if name in self._open else shown_name(name)

    def value(self, name: str, text: str, variable: str = "", *, origin: str = "") -> str:
        """The text as it may stand in a pipeline file: secrets and foreign references become references of Headrace.

        Args:
            name: the property, by which a secret is known.
            text: its value.
            variable: the environment variable for it; made of the name where it is empty.
            origin: how the input calls the property, where that is another name.
        """
        displayed = shown_name(origin or name)
        variable = variable or re.sub(r"\W+", "_", name).upper()
        form = _OF_QUARKUS if self.config.server else _OF_CONNECT
        secret = is_secret(name) or name.endswith(_PRIVATE_KEY) or _has_credentials(text)
        if secret and form.fullmatch(text.strip()) is None:
            return self.variable(variable, f"the value of {displayed}")
        return form.sub(lambda match: self._reference(match, displayed, variable), text)

    def variable(self, name: str, holds: str) -> str:
        """A reference to an environment variable, which the user then has to set."""
        self.environment.setdefault(name, holds)
        return f"${{env:{name}}}"

    def _reference(self, match: re.Match[str], displayed: str, variable: str) -> str:
        first, rest = match[1], match[2]
        if self.config.server:
            if rest is not None:
                self.notes.append(f"{displayed} has a default in the input; here its variable must be set.")
            return self.variable(re.sub(r"\W+", "_", first).upper(), f"what ${{{first}}} stood for in {displayed}")
        if first == "env":
            return self.variable(rest, f"what it held for {displayed}")
        path, _, key = rest.rpartition(":")
        if first in ("dir", "directory") and path:
            return f"${{file:{path}/{key}}}"
        return self.variable(variable, f"what ${{{first}:...}} stood for in {displayed}")


def _has_credentials(text: str) -> bool:
    return any("@" in urlsplit(part.strip()).netloc for part in text.split(",") if "://" in part)
