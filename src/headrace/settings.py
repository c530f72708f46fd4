"""What a user may set on a component, declared once as a class with a typed field per option.

    class FilesSettings(Settings):
        path: str = option("The folder that holds a folder per batch.")

    class FilesSink(Sink):
        name = "files"
        settings: FilesSettings

Parsing (`headrace.options`), the error that names the nearest option, Spark's camelCase names and the reference page
come from the fields; `self.settings.path` is a `str` to whoever reads it, and mypy knows.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypedDict, TypeVar, Unpack, dataclass_transform, overload

from headrace.options import Former, Goes, Names, Option, parsed_values, redact

Value = TypeVar("Value")
Other = TypeVar("Other", bound="Settings")

_REQUIRED: Any = object()
_KINDS: Mapping[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "tuple[str, ...]": list}


class OptionFacts(TypedDict, total=False):
    """What an option may have beside its text and its default: the arguments of `headrace.options.Option`."""

    name: str
    kind: Callable[[Any], Any] | None
    choices: tuple[str, ...]
    aliases: tuple[str, ...]
    minimum: float | None
    may_be_empty: bool
    names: Names | None
    beside_checkpoint: str
    in_other_names: bool
    former: tuple[Former, ...]
    goes: Goes | None
    no_folder_with: tuple[str, str] | None


@overload
def option(doc: str, **facts: Unpack[OptionFacts]) -> Any: ...


@overload
def option(doc: str, *, default: Value, **facts: Unpack[OptionFacts]) -> Value: ...


def option(doc: str, *, default: Any = _REQUIRED, name: str = "", kind: Any = None, **more: Any) -> Any:
    """Declares a field of `Settings` as an option; the arguments are those of `headrace.options.Option`.

    Args:
        doc: one or two sentences for the reference page: meaning, unit, and what happens at the default.
        default: the value when it is not given. Leave out for a required option.
        name: the option's name where the field has another one: `kafka.*` is not a name in Python.
        kind: turns text, or a YAML value, into the value, or raises ValueError. By default the field's type says it:
            `str`, `int`, `float`, `bool` or `tuple[str, ...]`, each also with `| None`.
        more: as in `Option`.
    """
    # A default is given to Option only where there is one: it has a mark of its own for a required option.
    given = {} if default is _REQUIRED else {"default": default}
    return Option(name, kind, doc, **given, **more)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Settings:
    """The options of one component, checked; a frozen dataclass whose fields are the options.

    A subclass is made a dataclass by itself. It has the options of its bases, in their order, then its own; one that is
    declared again moves to its new place.

    Attributes:
        declared: the options, in order.
    """

    declared: ClassVar[tuple[Option, ...]] = ()
    _fields: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        options: dict[str, Option] = {}
        for base in [base for base in cls.__bases__ if issubclass(base, Settings)]:
            for inherited in base.declared:
                options.setdefault(base._fields[inherited.name], inherited)
        for name, annotation in inspect.get_annotations(cls).items():
            value = cls.__dict__.get(name)
            if not isinstance(value, Option):
                continue
            if hasattr(Settings, name):
                raise TypeError(f"'{name}' of {cls.__name__} is a method of Settings; give the field another name.")
            options.pop(name, None)
            options[name] = replace(value, name=value.name or name, kind=value.kind or _kind(cls, name, annotation))
            setattr(cls, name, _field(value))
        cls.declared = tuple(options.values())
        cls._fields = {declared.name: name for name, declared in options.items()}
        dataclass(frozen=True, kw_only=True, repr=False)(cls)

    @classmethod
    def parse(cls, given: Mapping[str, Any], *, owner: str, ignore: Callable[[str], bool] = lambda _: False) -> Self:
        """Check and convert what a user gave.

        Args:
            given: names in any accepted spelling to raw values; a value of None counts as not given.
            owner: what the options belong to, for messages (`source 'sqlserver'`).
            ignore: names to leave alone where no option has them.

        Raises:
            OptionError: an unknown name (with the nearest known one), a missing required one, two spellings of one, or
            a bad value.
        """
        values = parsed_values(cls.declared, given, owner=owner, ignore=ignore)
        return cls(**{cls._fields[name]: value for name, value in values.items()})

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an option by its name, for code that serves every component; `default` if there is none."""
        return getattr(self, self._fields[name]) if name in self._fields else default

    def replaced(self, **values: Any) -> Self:
        """The same settings with other values for some fields."""
        return type(self)(**{**vars(self), **values})

    def cast_to(self, kind: type[Other], **values: Any) -> Other:
        """Settings of another class, with the values of the options that both have.

        Args:
            kind: the class.
            values: fields with other values, or that only it has.
        """
        shared = {name: getattr(self, name) for name in kind._fields.values() if name in self._fields.values()}
        return kind(**{**shared, **values})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({redact({each.name: self.get(each.name) for each in self.declared})})"


def _kind(owner: type, name: str, annotation: Any) -> Any:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    kind = _KINDS.get(text.removesuffix(" | None"))
    if kind is None:
        raise TypeError(f"Give option '{name}' of {owner.__name__} a kind: its type, {text}, does not say it.")
    return kind


def _field(declared: Option) -> Any:
    if declared.required:
        return field()
    if isinstance(declared.default, dict):
        return field(default_factory=lambda: dict(declared.default))
    return field(default=declared.default)


class Component:
    """What a user names and sets: a source, a format or a sink.

    A subclass says its `name`, and in the annotation `settings` the class of its options.

    Attributes:
        role: what it is, for messages.
        name: what users call it.
        options: its options, as `settings` declares them.
        settings: the values of its options.
        examples: values to be replaced, which `headrace init` writes for options that a file can't do without.
        offered: options that many want to know of, which `headrace init` writes as comments, at their defaults.
    """

    role: ClassVar[Literal["source", "format", "sink"]]
    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()
    examples: ClassVar[Mapping[str, str]] = MappingProxyType({})
    offered: ClassVar[tuple[str, ...]] = ()
    settings: Any
    _settings: ClassVar[type[Settings]] = Settings

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        annotation = inspect.get_annotations(cls).get("settings")
        if isinstance(annotation, str):
            annotation = getattr(sys.modules[cls.__module__], annotation, None)
            if annotation is None:
                raise TypeError(f"The settings of {cls.__name__} must be a class of its module, above it.")
        if annotation is not None:
            if not issubclass(annotation, cls._settings):
                raise TypeError(f"The settings of {cls.__name__} must be a kind of {cls._settings.__name__}.")
            cls._settings = annotation
            cls.options = annotation.declared

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def replaced(self, **values: Any) -> Self:
        """The same with other values of some options, as `Settings.replaced` takes them."""
        return type(self)(self.settings.replaced(**values))

    @classmethod
    def of(cls, given: Mapping[str, Any], *, ignore: Callable[[str], bool] = lambda _: False) -> Self:
        """One with these options: names in any accepted spelling to raw values; None counts as not given.

        Args:
            given: the options.
            ignore: names to leave alone where no option has them (Spark's own `path`).

        Raises:
            OptionError: an option is unknown, missing or malformed, or options contradict each other.
        """
        return cls(cls.parse(given, ignore=ignore))

    @classmethod
    def parse(
        cls, given: Mapping[str, Any], *, owner: str = "", ignore: Callable[[str], bool] = lambda _: False
    ) -> Any:
        """The options alone, as `of` takes them; messages name `owner`, by default role and name."""
        owner = owner or f"{cls.role} '{cls.name}'"
        return cls._settings.parse(given, owner=owner, ignore=ignore)
