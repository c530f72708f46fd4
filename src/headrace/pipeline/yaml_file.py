"""Reading a pipeline's YAML file: line numbers are kept, references are filled in, every error names file and line.

All scalars stay text, because each option knows its own type: a password `0123` must not become the number 83, nor
`12:30` a count of seconds. `${env:NAME}` stands for an environment variable and `${file:path}` for what a file holds
(without the newline at its end).

`Sections` is the frame of a file: which sections it has, and where each stands.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from headrace.errors import FileError, OptionError
from headrace.options import REDACTED
from headrace.pipeline.lease import SECONDS
from headrace.registry import did_you_mean

YamlPath = tuple[str | int, ...]
"""Where something stands in the file: keys and list indexes from the top."""

_REFERENCE = re.compile(r"\$\{(\w+):([^}]*)\}")
_UNCLOSED = re.compile(r"\$\{(?:env|file):[^}]*$")
_KINDS = ("env", "file")
_SHORT = 4


@dataclass
class Document:
    """A YAML file as plain data, and what is needed to speak about it.

    Args:
        path: the file.
        data: dicts, lists, text and None.
        lines: the line of every key and list item, by place.
        filled: what `${...}` references stood for; never shown.
    """

    path: Path
    data: Any = None
    lines: dict[YamlPath, int] = field(default_factory=dict)
    filled: list[str] = field(default_factory=list, repr=False)

    def line(self, location: YamlPath) -> int:
        """The line of a place, or of the nearest place around it."""
        for end in range(len(location), 0, -1):
            if location[:end] in self.lines:
                return self.lines[location[:end]]
        return 1

    def error(self, location: YamlPath, message: str, remedy: str = "") -> FileError:
        """An error whose sentence begins with file and line and shows no filled-in value."""
        sentence = hide(message, self.filled)
        return FileError(str(self.path), self.line(location), sentence, remedy=hide(remedy, self.filled))


def read_yaml(path: Path) -> Document:
    """Read a pipeline file.

    Raises:
        OptionError: the file is missing or no YAML, a key is given twice, or a reference can't be filled in.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OptionError(f"There is no pipeline file '{path}'.", remedy="Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionError(f"The pipeline file '{path}' can't be read: {reason}.", remedy="Check the path.") from None
    document = Document(path)
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise FileError(str(path), 1, "The file is empty.", remedy="A pipeline has source, sinks and pipeline.")
        document.data = _value(loader, node, (), document, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise FileError(
            str(path),
            line,
            f"This is not valid YAML: {error.problem or error.context}.",
            remedy="Check indentation, quotes and brackets there.",
        ) from None
    except yaml.YAMLError:
        raise FileError(
            str(path), 1, "This is not valid YAML.", remedy="It holds a character that YAML does not allow."
        ) from None
    finally:
        loader.dispose()
    return document


def hide(text: str, values: list[str]) -> str:
    """The text without any of the values, which are secrets or may be."""
    for value in sorted({v for v in values if v.strip()}, key=len, reverse=True):
        # A short value is hidden only as a word of its own: `1` must not blot out every number.
        edges = (r"(?<!\w)", r"(?!\w)") if len(value) < _SHORT else ("", "")
        for form in {value, repr(value)[1:-1]}:
            text = re.sub(edges[0] + re.escape(form) + edges[1], REDACTED, text)
    return text


def _value(
    loader: yaml.SafeLoader, node: yaml.Node, location: YamlPath, document: Document, around: tuple[int, ...]
) -> Any:
    document.lines.setdefault(location, node.start_mark.line + 1)
    if id(node) in around:
        raise document.error(location, "An alias refers to what it stands in.", "Write the value out.")
    around = (*around, id(node))
    if isinstance(node, yaml.ScalarNode):
        if node.tag == "tag:yaml.org,2002:null":
            return None
        return _filled(str(node.value), location, document)
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, (*location, n), document, around) for n, item in enumerate(node.value)]
    assert isinstance(node, yaml.MappingNode)
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise document.error(location, "A key must be a name.", "Write `name: value`.")
        if key.value in seen:
            document.lines[(*location, key.value)] = key.start_mark.line + 1
            raise document.error((*location, key.value), f"Key '{key.value}' is given twice.", "Keep one of them.")
        seen.add(key.value)
    loader.flatten_mapping(node)
    values: dict[str, Any] = {}
    for key, item in node.value:
        document.lines[(*location, key.value)] = key.start_mark.line + 1
        values[key.value] = _value(loader, item, (*location, key.value), document, around)
    return values


def _filled(text: str, location: YamlPath, document: Document) -> str:
    def fill(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "env":
            value = os.environ.get(name)
            if value is None:
                raise document.error(
                    location, f"The environment variable {name} is not set.", f"Set it: export {name}=..."
                )
        elif kind == "file":
            value = _file(name, location, document)
        else:
            raise document.error(location, f"Unknown reference '${{{kind}:...}}'.", did_you_mean(kind, _KINDS))
        document.filled.append(value)
        return value

    if unclosed := _UNCLOSED.search(_REFERENCE.sub("", text)):
        raise document.error(location, f"The reference '{unclosed[0]}' has no closing brace.", "Write ${env:NAME}.")
    filled = _REFERENCE.sub(fill, text)
    if text.strip() and not filled.strip():
        kind, name = _REFERENCE.findall(text)[0]
        what = f"environment variable {name}" if kind == "env" else f"file '{name}'"
        raise document.error(location, f"The {what} is empty.", "Put the value into it, or take the reference out.")
    return filled


def _file(name: str, location: YamlPath, document: Document) -> str:
    file = document.path.parent / name
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise document.error(
            location,
            f"The file '{name}' of '${{file:{name}}}' can't be read: {error.strerror}.",
            f"It was looked for in {file}.",
        ) from None
    except UnicodeDecodeError:
        raise document.error(
            location, f"The file '{name}' of '${{file:{name}}}' is not UTF-8 text.", "Save it as UTF-8."
        ) from None


class RunSettings(BaseModel):
    """The section `pipeline`: the name under which sinks know it, where its state is kept, how often it looks, and what
    it does when one table can't be read or written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
    checkpoint: Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
    trigger: str = "1s"
    lease_seconds: Annotated[int, Field(ge=0, le=86_400)] = SECONDS
    on_table_error: Literal["stop", "park"] | None = None


class Sections(BaseModel):
    """The frame of a pipeline file; what is inside a source, format or sink is theirs to declare."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: dict[str, Any]
    format: dict[str, Any] | None = None
    sink: dict[str, Any] | None = None
    sinks: list[dict[str, Any]] | None = None
    transforms: list[dict[str, Any]] | None = None
    dead_letter: dict[str, Any] | None = None
    observe: dict[str, Any] | None = None
    pipeline: RunSettings


def read_sections(document: Document) -> Sections:
    """The sections of a file.

    Raises:
        OptionError: with line: a section is missing, unknown or of another kind.
    """
    if not isinstance(document.data, dict):
        raise document.error((), "A pipeline file is a mapping.", "Begin with `source:`, `sinks:` and `pipeline:`.")
    try:
        sections = Sections.model_validate(document.data)
    except ValidationError as error:
        raise _frame_error(document, error) from None
    if (sections.sink is None) == (sections.sinks is None):
        given = ("sinks",) if sections.sinks is not None else ()
        problem = "Both 'sink' and 'sinks' are given." if given else "Key 'sinks' is missing."
        raise document.error(given, problem, "Give one: `sinks:` with a list, or `sink:` for a single one.")
    if sections.sinks == []:
        raise document.error(("sinks",), "The list 'sinks' is empty.", "Name at least one sink.")
    return sections


def _frame_error(document: Document, error: ValidationError) -> OptionError:
    # The first error in the order of the file is what a reader meets first.
    first = min(error.errors(), key=lambda e: (e["type"] == "missing", document.line(e["loc"])))
    location: YamlPath = first["loc"]
    name = ".".join(str(part) for part in location)
    kind = first["type"]
    if kind == "extra_forbidden" and location == ("routes",):
        return document.error(location, "Key 'routes' stands in no sink.", "Put it into the sink that it is for.")
    if kind == "extra_forbidden":
        model = RunSettings if len(location) > 1 else Sections
        where = f" in section '{location[0]}'" if len(location) > 1 else ""
        return document.error(
            location, f"Unknown key '{location[-1]}'{where}.", did_you_mean(str(location[-1]), model.model_fields)
        )
    if kind == "missing":
        return document.error(location[:-1], f"Key '{name}' is missing.", _MISSING.get(name, "Add it."))
    if kind == "string_too_short":
        return document.error(location, f"Key '{name}' is empty.", _MISSING[name])
    if location == ("pipeline", "lease_seconds"):
        return document.error(
            location, f"Key '{name}' must be a number of seconds.", "Write 60, or 0 for a checkpoint without a lease."
        )
    if location == ("pipeline", "on_table_error"):
        return document.error(
            location,
            f"Key '{name}' must be stop or park.",
            "Write park, so that other tables go on without one, or stop.",
        )
    wanted = {"list_type": "a list", "dict_type": "a mapping", "model_type": "a mapping"}.get(kind, "a text")
    return document.error(
        location, f"Key '{name}' must be {wanted}.", "See the example in the documentation of pipelines."
    )


_MISSING = {
    "source": "Say where changes come from: source: {type: sqlserver, ...}.",
    "pipeline": "Add pipeline: {name: ..., checkpoint: ...}.",
    "pipeline.name": "Name the pipeline; sinks remember who wrote to them by it.",
    "pipeline.checkpoint": "Name a folder or URL where the state is kept.",
}


def listed_sinks(sections: Sections) -> list[tuple[dict[str, Any], YamlPath]]:
    """The sections of the sinks, each with its place, however they are given."""
    if sections.sinks is not None:
        return [(section, ("sinks", n)) for n, section in enumerate(sections.sinks)]
    assert sections.sink is not None
    return [(sections.sink, ("sink",))]
