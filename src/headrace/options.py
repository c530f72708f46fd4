"""One declaration per option, from which parsing, validation, redaction and the reference pages come.

An option has one name in snake case; it is accepted in Spark's camelCase too (`on_error`, `onError`), and under the
dotted Debezium names that mean the same (`snapshot.mode`). Case and the separators `.`, `_`, `-` do not matter when
matching, because Spark hands options over in a case-insensitive map. An unknown option is an error that names the
nearest known one.

An option that gets another name keeps the old one for a while (`former`), and one that goes says so before it does
(`goes`). Each works and warns until the release that it names; from that release on it is an error that says what to do
(docs/upgrades.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from headrace.errors import OptionError
from headrace.registry import built_in_names, did_you_mean, find
from headrace.versions import __version__, is_gone, warn_of_change

_SECRET = re.compile(
    r"password|secret|token|credential|private.?key|keystore.?key$|user.?info|jaas|salt$", re.IGNORECASE
)
_SECRET_IN_NAME = re.compile(r"(\.with\.salt\.)(.+)", re.IGNORECASE | re.DOTALL)
_MISSING: Any = object()
REDACTED = "*********(redacted)"
_OPTIONAL = "optional:"
_KINDS_OF_OWNER = ("source", "format", "sink")
_LONGEST_LIST = 300


@dataclass(frozen=True)
class Names:
    """What the names and patterns in an option's value refer to, so that one that matches nothing can be reported.

    Args:
        what: `tables` or `columns` of the source; `captured columns` where a column without values is none; `nothing`
            where they are names of other things.
        does: `protects` values or rows from going on, `chooses` them, or `informs`; `selects` the tables that are
            captured at all, which the source itself sees to where it goes on.
        name_in: the name in one of the values, where that is more than a name.
    """

    what: Literal["tables", "columns", "captured columns", "nothing"]
    does: Literal["protects", "chooses", "selects", "informs"] = "informs"
    name_in: Callable[[str], str] = str


OTHER_NAMES = Names("nothing")


class Former(NamedTuple):
    """A name that an option had.

    Args:
        name: the name.
        until: the release of Headrace that no longer takes it (`0.4`).
    """

    name: str
    until: str


class Goes(NamedTuple):
    """What is said of an option that a later release does not have.

    Args:
        until: that release of Headrace (`0.4`).
        instead: what to do, as a sentence.
    """

    until: str
    instead: str


def is_optional(name: str) -> bool:
    """Whether a name or pattern may match nothing: it begins with `optional:`."""
    return name.startswith(_OPTIONAL)


def bare(name: str) -> str:
    """A name or pattern without the prefix `optional:`."""
    return name.removeprefix(_OPTIONAL)


def folder(given: Any) -> str:
    """The kind of an option that names a folder, as a path or URL.

    In a pipeline file a relative one is relative to that file, and a sink may not have one inside the checkpoint.
    """
    return _parse_text(given)


@dataclass(frozen=True)
class Option:
    """What a user may set on a source, format or sink.

    Args:
        name: snake case; the camelCase and dotted spellings are derived. A name that ends with `.*` (`kafka.*`) takes
            every name that starts so and is not another option, as it is; its value is a mapping from name to text.
        kind: `str`, `int`, `float`, `bool`, `list` (see `items`), `folder`, or a callable from text or YAML value to
            value that raises ValueError.
        doc: one or two sentences for the reference page: meaning, unit, and what happens at the default.
        default: the value when it is not given. Leave out for a required option.
        choices: the only values allowed; of a list, the only parts.
        aliases: other names with the same meaning, Debezium's dotted ones above all.
        minimum: the least number allowed.
        may_be_empty: whether a value without anything in it says something. Otherwise it is an error, because it comes
            from a variable that is set and empty more often than it is meant.
        names: what its value names; needed where that may be several.
        beside_checkpoint: of a folder: in a pipeline whose checkpoint is a local folder, the default is that folder's
            path with this text after it.
        in_other_names: whether the value may be a part of other options' names (Debezium's salts of hashes).
        former: the names that it had in earlier releases.
        goes: of an option that a later release does not have; it has a default.
        no_folder_with: of a folder: an option and its value with which this one is a name, and stays as it is.
    """

    name: str
    kind: Any
    doc: str
    default: Any = _MISSING
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    minimum: float | None = None
    may_be_empty: bool = False
    names: Names | None = None
    beside_checkpoint: str = ""
    in_other_names: bool = False
    former: tuple[Former, ...] = ()
    goes: Goes | None = None
    no_folder_with: tuple[str, str] | None = None

    @property
    def is_folder(self) -> bool:
        """Whether its value is the path of a folder."""
        return self.kind is folder

    def has_name(self, name: str) -> bool:
        """Whether a name is one of its spellings."""
        return _fold(name) in {_fold(accepted) for accepted in self.accepted_names}

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """The names under which a user may give it, former ones too."""
        return (self.name, *self.aliases, *(former.name for former in self.former))

    @property
    def required(self) -> bool:
        """Whether the user must give it."""
        return self.default is _MISSING

    @property
    def secret(self) -> bool:
        """Whether its value must never be shown. What a pattern (`kafka.*`) takes is judged name by name."""
        return is_secret(self.name)

    @property
    def prefix(self) -> str | None:
        """`kafka.` where the name is `kafka.*`."""
        return self.name.removesuffix("*") if self.name.endswith(".*") else None

    def parse(self, given: Any) -> Any:
        """Turn what the user gave (text, or a YAML value) into the option's value.

        Raises:
            OptionError: it does not fit; the value itself is quoted only if the option is not a secret.
        """
        if not self.may_be_empty and "" not in self.choices and self._is_empty(given):
            remedy = f"Set it: {self.doc}" if self.required else "Give it a value, or leave the option out."
            raise OptionError(f"Option '{self.name}' is empty.", remedy=remedy, option=self.name)
        if isinstance(given, (list, tuple)) and any(part is None or part == "" for part in given):
            raise OptionError(
                f"A part of option '{self.name}' is empty.", remedy="Fill it in or remove it.", option=self.name
            )
        try:
            value = _PARSERS.get(self.kind, self.kind)(given)
        except (ValueError, TypeError, AttributeError) as error:
            # A kind that takes text only meets lists and mappings too.
            shown = REDACTED if self.secret else repr(given)
            detail = str(error) if isinstance(error, ValueError) else "expected text"
            if self.kind in (str, int, float, bool):
                detail = f"expected {self.kind.__name__}"
            if self.is_folder:
                detail = "expected a path"
            raise OptionError(
                f"Option '{self.name}' can't be {shown}: {detail}.", remedy=f"See: {self.doc}", option=self.name
            ) from error
        for part in value if self.kind is list else (value,):
            if self.choices and part not in self.choices:
                raise OptionError(
                    f"Option '{self.name}' can't be {part!r}.",
                    remedy=did_you_mean(str(part), self.choices),
                    option=self.name,
                )
        if self.minimum is not None and value < self.minimum:
            raise OptionError(
                f"Option '{self.name}' can't be {value}.", remedy=f"The minimum is {self.minimum:g}.", option=self.name
            )
        return value

    def _is_empty(self, given: Any) -> bool:
        if isinstance(given, str):
            # Commas between parts are not a value.
            return not given.strip(" \t\r\n" if self.kind in (str, folder) else " \t\r\n,;")
        return isinstance(given, (list, tuple, Mapping, frozenset)) and not given


def parsed_values(
    declared: tuple[Option, ...], given: Mapping[str, Any], *, owner: str, ignore: Callable[[str], bool]
) -> dict[str, Any]:
    """Check and convert what a user gave against what is declared.

    Args:
        declared: the options that exist.
        given: names in any accepted spelling to raw values; a value of None counts as not given.
        owner: what the options belong to, for messages (`source 'sqlserver'`).
        ignore: names to leave alone where no option has them (Spark's own `path`, `kafka.*` pass-through).

    Returns:
        The values by the options' names.

    Raises:
        OptionError: an unknown name (with the nearest known one), a missing required one, two spellings of one, a
        bad value, or a name that an earlier release had.
    """
    by_name = _by_name(declared)
    values: dict[str, Any] = {}
    for name, raw in given.items():
        known = by_name.get(_fold(name))
        if raw is None or (known is None and ignore(name)):
            continue
        pattern = next((o for o in declared if o.prefix and name.lower().startswith(o.prefix)), None)
        if known is None and pattern is not None:
            values.setdefault(pattern.name, {})[name] = pattern.parse(raw)
            continue
        if known is None:
            raise _unknown(name, declared, owner)
        if known.name in values:
            raise OptionError(
                f"Option '{known.name}' of {owner} is given twice.", remedy="Keep one spelling.", option=known.name
            )
        _say_what_goes(known, name, owner)
        values[known.name] = known.parse(raw)
    for option in declared:
        if option.name not in values:
            if option.required:
                raise OptionError(
                    f"Option '{option.name}' of {owner} is missing.", remedy=f"Set it: {option.doc}", option=option.name
                )
            values[option.name] = option.default
    return values


def option_of(declared: Iterable[Option], name: str) -> Option | None:
    """The option that a name stands for in any accepted spelling, or that takes all names which begin like it."""
    known = _by_name(declared).get(_fold(name))
    return known or next((o for o in declared if o.prefix and name.lower().startswith(o.prefix)), None)


def _by_name(declared: Iterable[Option]) -> dict[str, Option]:
    return {_fold(accepted): option for option in declared for accepted in option.accepted_names}


def _say_what_goes(option: Option, name: str, owner: str) -> None:
    """Warn of a name that a later release does not take, or stop where this one is that release.

    Raises:
        OptionError: this one is.
    """
    for former in option.former:
        if _fold(former.name) != _fold(name):
            continue
        if is_gone(former.until):
            raise OptionError(
                f"Option '{former.name}' of {owner} is '{option.name}' since Headrace {former.until}.",
                remedy="Rename it.",
                option=name,
            )
        warn_of_change(
            f"Option '{former.name}' of {owner} is now '{option.name}'. Rename it: from Headrace {former.until} on the "
            "old name is an error."
        )
    if option.goes is None:
        return
    if is_gone(option.goes.until):
        raise OptionError(
            f"Headrace {option.goes.until} and later have no option '{option.name}' of {owner}.",
            remedy=option.goes.instead,
            option=name,
        )
    warn_of_change(
        f"Option '{option.name}' of {owner} is an error from Headrace {option.goes.until} on. {option.goes.instead}"
    )


def items(given: Any, split: Callable[[str], Sequence[str]] = lambda text: text.split(",")) -> list[str]:
    """The parts of an option with several values: the items of a list, or the parts of a text between commas.

    Text may be a JSON array of texts too, because a part may hold a comma.

    Args:
        given: a list, or text.
        split: cuts text where it is not JSON.

    Raises:
        ValueError: it is neither, or a part of a list is empty or no text.
    """
    if isinstance(given, Mapping):
        raise ValueError("it is a mapping")
    if isinstance(given, str):
        texts = _json_texts(given)
        given = [part for part in split(given) if part.strip()] if texts is None else texts
    if not isinstance(given, (list, tuple)):
        given = [given]
    parts = ["" if part is None else str(part).strip() for part in given]
    if not all(parts):
        raise ValueError("a part of it is empty")
    if any(isinstance(part, (list, tuple, Mapping)) for part in given):
        raise ValueError("a part of it is not text")
    return parts


def as_text(value: Any) -> str:
    """A value as the text from which an option is parsed to the same: lists and mappings as JSON.

    So it travels through whoever passes options on as text, such as Spark.
    """
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, Mapping)) else str(value)


def _json_texts(text: str) -> list[str] | None:
    """The texts of a JSON array; None for any other text, such as a glob that begins with a bracket."""
    try:
        parsed = json.loads(text) if text.lstrip().startswith("[") else None
    except json.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, list) and all(isinstance(part, str) for part in parsed) else None


def _unknown(name: str, declared: tuple[Option, ...], owner: str) -> OptionError:
    """The error for a name that the owner does not have; it names the owner that has it, if any."""
    kinds = [kind for kind in _KINDS_OF_OWNER if not owner.startswith(kind) and _has(kind, name)]
    if kinds:
        belongs = " or ".join(f"a {kind}" for kind in kinds)
        return OptionError(
            f"Option '{shown_name(name)}' belongs to {belongs}, not to {owner}.", remedy="Move it there.", option=name
        )
    remedy = did_you_mean(name, [known for option in declared for known in (option.name, *option.aliases)])
    if len(remedy) > _LONGEST_LIST:
        remedy = f"See the options reference of Headrace {__version__} for the names."
    return OptionError(f"Unknown option '{shown_name(name)}' for {owner}.", remedy=remedy, option=name)


def _has(kind: str, name: str) -> bool:
    """Whether a built-in source, format or sink has an option of that name."""
    for owner in built_in_names(kind):
        try:
            declared: tuple[Option, ...] = find(kind, owner).options
        except ModuleNotFoundError:
            # What is not installed is not looked at.
            continue
        if any(option.has_name(name) for option in declared):
            return True
        if any(option.prefix and name.lower().startswith(option.prefix) for option in declared):
            return True
    return False


def is_secret(name: str) -> bool:
    """Whether a name sounds like a secret, by which values are redacted everywhere."""
    return bool(_SECRET.search(name))


def secret_in_name(name: str) -> str | None:
    """The secret that an option's name itself holds: Debezium puts the salt of a hash there."""
    match = _SECRET_IN_NAME.search(name)
    return match[2] if match else None


def shown_name(name: str) -> str:
    """An option's name, fit to be logged or shown."""
    return _SECRET_IN_NAME.sub(lambda found: found[1] + REDACTED, name)


def redact(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping, fit to be logged or shown."""
    return {
        shown_name(k): redact(v) if isinstance(v, Mapping) else REDACTED if is_secret(k) and v not in (None, "") else v
        for k, v in values.items()
    }


def _fold(name: str) -> str:
    return re.sub(r"[._\-]", "", name).lower()


def _parse_bool(given: Any) -> bool:
    if isinstance(given, bool):
        return given
    text = str(given).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError(given)


def _parse_int(given: Any) -> int:
    if isinstance(given, bool):
        raise ValueError(given)
    return int(str(given).strip())


def _parse_text(given: Any) -> str:
    if isinstance(given, (dict, list, tuple)):
        raise ValueError(given)
    return str(given)


_PARSERS: dict[Any, Callable[[Any], Any]] = {
    str: _parse_text,
    int: _parse_int,
    float: lambda given: float(str(given)),
    bool: _parse_bool,
    list: lambda given: tuple(items(given)),
}
