"""Advice: the command that cures a fault, as a value. Each door prints it in its own words: the command line as a
command, Python as a call."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

#: The value of an option: ``True`` for a switch, ``None`` to name the option without a value; a sequence repeats it.
Value = bool | int | str | None | Sequence[str]
#: Stands for what the reader knows: targets, crawls.
ANY: Final = "…"


@dataclass(frozen=True, slots=True)
class Advice:
    """A call that cures a fault or tells more.

    ``command`` is a name of the table of commands (``index harvest``), or empty for the command that was called:
    then only ``options`` are named. ``options`` are flags without dashes, with ``_`` between words. ``sentence`` is the
    text around the call, which takes the place of ``{}``.
    """

    command: str
    arguments: tuple[str, ...] = ()
    options: Mapping[str, Value] = field(default_factory=dict)
    sentence: str = "{}"

    def __str__(self) -> str:
        return self.sentence.replace("{}", _doors[-1](self))


Door = Callable[[Advice], str]


def advise(command: str, *arguments: str, sentence: str = "{}", **options: Value) -> Advice:
    """Returns the advice to call ``command``. An empty sequence is no option."""
    given = {name: value for name, value in options.items() if value not in ((), [])}
    return Advice(command, arguments, given, sentence)


def option(*, sentence: str = "{}", **options: Value) -> Advice:
    """Returns the advice to add options to the call that failed, as in ``option(yes=True)``."""
    return advise("", sentence=sentence, **options)


def describe_command(advice: Advice) -> str:
    """Returns the call as it is typed into a shell."""
    words = ["cc-pipeline", *advice.command.split()] if advice.command else []
    words += [quote(argument) for argument in advice.arguments]
    for name, value in advice.options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is True:
            words.append(flag)
        else:
            values = [value] if isinstance(value, str | int) else value
            words += [word for text in values for word in (flag, quote(str(text)))]
    return " ".join(words)


def quote(text: str) -> str:
    """Returns a word of a shell's command. Text with single quotes, such as SQL, gets double ones."""
    if text == ANY:
        return text
    needs_double_quotes = "'" in text and not any(character in text for character in '"$`\\!')
    return f'"{text}"' if needs_double_quotes else shlex.quote(text)


#: The doors through which calls came in; the innermost one prints.
_doors: list[Door] = [describe_command]


@contextmanager
def printing(door: Door) -> Iterator[None]:
    """Makes ``door`` print the advice of the block, in all threads."""
    _doors.append(door)
    try:
        yield
    finally:
        _doors.remove(door)
