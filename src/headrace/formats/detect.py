"""Which wire format messages are in, and why: each registered format looks for its own marks (`Format.recognise`).

A message that shows no marks (a tombstone, a heartbeat, an unreadable one) speaks for no format and against none. When
the messages speak for two, or for none, nothing is guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace import registry
from headrace.errors import OptionError
from headrace.formats.base import Format
from headrace.formats.recognition import Evidence, FormatOptions, Sample

SAMPLE = 1000
"""How many messages `detect` looks at."""


@dataclass(frozen=True)
class Detection:
    """The format of a sample.

    Args:
        format: its registered name.
        options: options of the format that the messages ask for.
        sentence: the format and the reasons, for a person.
    """

    format: str
    options: Mapping[str, str]
    sentence: str


def detect(messages: Sequence[Sample]) -> Detection:
    """The one registered format that these messages speak for. Looks at the first `SAMPLE` messages.

    Raises:
        OptionError: they speak for none or for several; names the candidates with their reasons.
    """
    sample = messages[:SAMPLE]
    formats: dict[str, type[Format]] = {name: registry.find("format", name) for name in registry.names("format")}
    votes: dict[tuple[str, FormatOptions], Counter[str]] = {}
    undecided: dict[tuple[str, FormatOptions], Counter[str]] = {}
    for message in sample:
        candidates = recognise(message, formats)
        # What may be of two formats decides nothing, unless no other message tells which of them.
        counts = votes if len(candidates) == 1 else undecided
        for name, evidence in candidates.items():
            counts.setdefault((name, evidence.options), Counter())[evidence.why] += 1
    if not votes.keys() & undecided.keys():
        votes |= undecided
    if not votes:
        raise OptionError(
            f"None of {_messages(len(sample))} has the marks of a known format.",
            remedy=f"Name it with --format: {', '.join(formats)}.",
        )
    if len(votes) > 1:
        candidates_text = "; ".join(_candidate(name, options, whys) for (name, options), whys in sorted(votes.items()))
        raise OptionError(
            f"The format of {_messages(len(sample))} is not clear. Candidates: {candidates_text}.",
            remedy="Choose one with --format, and pass messages of one format only.",
        )
    (((name, options), whys),) = votes.items()
    recognised = sum(whys.values())
    silent = len(sample) - recognised
    sentence = _candidate(name, options, whys)
    if silent:
        sentence += f"; {silent} of {_messages(len(sample))} {'shows' if silent == 1 else 'show'} no format"
    return Detection(name, dict(options), sentence)


def recognise(message: Sample, formats: Mapping[str, type[Format]]) -> dict[str, Evidence]:
    """The formats that a message may be of, by name: none, one, or several."""
    asked = ((name, format.recognise(message)) for name, format in formats.items())
    evidences = {name: evidence for name, evidence in asked if evidence is not None}
    return {name: evidence for name, evidence in evidences.items() if evidence.sure} or evidences


def _candidate(format: str, options: FormatOptions, whys: Counter[str]) -> str:
    given = "".join(f" with {name}={value}" for name, value in options)
    reason = max(whys, key=lambda why: whys[why])
    return f"{format}{given} ({_messages(sum(whys.values()))}: {reason})"


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
