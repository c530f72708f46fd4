"""The frame of a pipeline file: which sections it has, and where each stands."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from headrace.errors import OptionError
from headrace.pipeline.lease import SECONDS
from headrace.pipeline.yaml_file import Document, YamlPath
from headrace.registry import did_you_mean


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
        said = "Both 'sink' and 'sinks' are given." if given else "Key 'sinks' is missing."
        raise document.error(given, said, "Give one: `sinks:` with a list, or `sink:` for a single one.")
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
