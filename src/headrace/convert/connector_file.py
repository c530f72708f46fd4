"""Reading a connector's configuration: Java properties of Debezium Server or Kafka Connect, or Connect's JSON.

Whatever the file, its properties get the names that Kafka Connect has for them (`database.hostname`,
`value.converter`, `producer.acks`), each with the name that stands in the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import OptionError

_SERVER = "debezium."
_SIDES = ("key", "value", "header")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SETS = "A properties file of Debezium Server or Kafka Connect, or Connect's JSON, is wanted."


@dataclass(frozen=True)
class Property:
    """One property.

    Args:
        given: its name in the file.
        name: Connect's name for it.
        value: its text; may be a secret.
    """

    given: str
    name: str
    value: str

    def __repr__(self) -> str:
        return f"Property({self.given!r})"


@dataclass(frozen=True)
class ConnectorConfig:
    """A connector's configuration as it stands in a file.

    Args:
        file: where it was read from.
        server: whether it is one of Debezium Server, which names the sink too.
        name: the connector's name; empty where the file says none.
        properties: in the order of the file; one that stands for several of Connect's comes once for each.
    """

    file: Path
    server: bool
    name: str
    properties: tuple[Property, ...]


def read_connector(file: Path) -> ConnectorConfig:
    """Read a connector's configuration.

    Raises:
        OptionError: the file can't be read, or is no such configuration.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise OptionError(f"There is no file '{file}'.", remedy="Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionError(f"The file '{file}' can't be read: {reason}.", remedy="Check the path.") from None
    name, given = ("", parse_properties(text)) if not text.lstrip().startswith("{") else _from_json(file, text)
    if not given:
        raise OptionError(f"'{file}' holds no properties.", remedy=_SETS)
    server = any(key.startswith(_SERVER) for key in given)
    properties = [property for key, value in given.items() for property in _named(key, value, server=server)]
    name = name or next((p.value for p in properties if p.name == "name"), "")
    return ConnectorConfig(file, server, name, tuple(properties))


def _from_json(file: Path, text: str) -> tuple[str, dict[str, str]]:
    try:
        parsed: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(
            f"{file}, line {error.lineno}: This is no valid JSON: {error.msg}.", remedy="Check commas and quotes there."
        ) from None
    inner = parsed.get("config")
    name = str(parsed.get("name", "")) if isinstance(inner, dict) else ""
    values = {}
    for key, value in (inner if isinstance(inner, dict) else parsed).items():
        if isinstance(value, (dict, list)):
            raise OptionError(f"Property '{key}' in '{file}' is no text, number or boolean.", remedy=_SETS)
        # Null is how Connect's interface says that a property is not set.
        if value is not None:
            values[key] = json.dumps(value) if isinstance(value, bool) else str(value)
    return name, values


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties: comments, continued lines, escapes; of a name that comes twice the last value holds.

    Source: java.util.Properties.load, with UTF-8 as Quarkus and Kafka Connect read it.
    """
    properties = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescaped(key)] = _unescaped(value)
    return properties


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    whole = ""
    continued = False
    for line in re.split(r"\r\n|\r|\n", text):
        bare = line.lstrip(" \t\f")
        if not continued and (not bare or bare[0] in "#!"):
            continue
        backslashes = len(bare) - len(bare.rstrip("\\"))
        continued = backslashes % 2 == 1
        whole += bare[:-1] if continued else bare
        if not continued:
            lines.append(whole)
            whole = ""
    return [*lines, whole] if whole else lines


def _split(line: str) -> tuple[str, str]:
    """Name and value: the first `=`, `:` or blank that no backslash precedes parts them."""
    parted = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert parted is not None
    return parted[1], parted[2]


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code, letter = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(letter, letter)

    unescaped = re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", plain, text, flags=re.DOTALL)
    # Java escapes what lies beyond 16 bits as two halves.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _named(key: str, value: str, *, server: bool) -> list[Property]:
    if not server:
        names = [re.sub(r"^producer\.override\.", "producer.", key)]
    elif not key.startswith(_SERVER):
        names = [key]
    else:
        names = _of_server(key.removeprefix(_SERVER))
    return [Property(key, name, value) for name in names]


def _of_server(name: str) -> list[str]:
    """The names of a property of Debezium Server, without its first part."""
    room, _, rest = name.partition(".")
    if room == "source":
        return [rest]
    if name.startswith("sink.kafka.producer."):
        return [name.removeprefix("sink.kafka.")]
    if room == "format":
        side, _, setting = rest.partition(".")
        if side in _SIDES:
            return [f"{side}.converter.{setting}" if setting else f"{side}.converter"]
        return [f"{side}.converter.{rest}" for side in _SIDES]
    return [name]
