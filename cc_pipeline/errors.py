"""The two families of errors, which every room may import.

A *data fault* is about bytes that somebody else wrote. It names the file, the offset and the reason. It is recorded
with the good rows and never stops a run. An *environment fault* is about this machine at this moment (network, disk,
settings). It stops the run after complete work has been committed, and it says what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from cc_pipeline.advice import Advice


class CcPipelineError(Exception):
    """The base of all errors that this package raises on purpose."""


class Kind(StrEnum):
    """The base of the two closed lists of kinds of fault: ``DataKind`` here, ``FaultKind`` in the transport.

    Code decides by the kind. The message is for people and may change at any time.
    """


class DataKind(Kind):
    """The kinds of data faults; docs/faults.md explains each.

    The first six are also values of the column ``reason`` of ``records``, so their spelling is public.
    """

    NOT_GZIP = "not_gzip"
    GZIP_TRUNCATED = "gzip_truncated"
    GZIP_CORRUPT = "gzip_corrupt"
    TOO_LARGE = "too_large"
    NOT_A_RECORD = "not_a_record"
    LENGTH_MISMATCH = "length_mismatch"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    MISMATCH = "mismatch"
    UNSUPPORTED = "unsupported"
    PARSER_BROKE = "parser_broke"


class DataFault(CcPipelineError):
    """Bytes that break their format.

    ``kind`` says what is wrong, for code: a ``DataKind``, or the ``FaultKind`` of a range that could not be read.
    ``source`` is the key or path of the object, ``offset`` the byte at which reading failed (``None`` when
    the whole object is meant), ``reason`` a short sentence without a full stop, for people.
    """

    kind: Kind

    def __init__(self, kind: Kind, source: str, offset: int | None, reason: str) -> None:
        self.kind = kind
        self.source = source
        self.offset = offset
        self.reason = reason
        where = source if offset is None else f"{source} at byte {offset}"
        super().__init__(f"{where}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        # exceptions are pickled with their message alone, but the constructor needs other arguments
        return type(self), (self.kind, self.source, self.offset, self.reason), self.__dict__


class EnvironmentFault(CcPipelineError):
    """Something on this machine or its network stops the work. ``problem`` says what happened, ``advice`` what to do:
    a call, or a sentence if no call is the cure.

    The text of the error has both, on two lines, so that an event log shows them separately too.
    """

    def __init__(self, problem: str, advice: str | Advice) -> None:
        # ``problem`` may contain the text of another fault, which has two lines
        self.problem = ". ".join(problem.splitlines())
        # another process prints it in the words of its own door
        self._given_advice = advice
        super().__init__(f"{self.problem}\n{advice}" if advice else self.problem)

    @property
    def advice(self) -> str:
        """What to do, in the words of the door through which the call came in that failed."""
        return str(self).partition("\n")[2]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self._given_advice), self.__dict__


class PlaceFault(EnvironmentFault):
    """The disk, the home or the lake cannot be written. The error affects all targets."""


class Incomplete(EnvironmentFault):
    """The source did not return everything that was planned, and may still return it. Complete work was committed.

    Commands end with status 3, so that callers can tell "run it again" from other failures. ``report`` is the result of
    the call as far as it is known.
    """

    report: Any = None


class SourceRefuses(Incomplete):
    """The source refused requests for longer than the time limit. The message says when to try again."""


class IndexIncomplete(Incomplete):
    """Files of a crawl's index could not be read, so their captures would be missing without notice."""


class UserInputError(CcPipelineError):
    """A value of the user (a crawl, a target, a setting) cannot be used; the message says why."""


class CrawlUnpublished(UserInputError):
    """A crawl is announced, but the source has no path list of it yet."""


_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: SQLITE_FULL: the file cannot grow. SQLITE_IOERR: its shared memory cannot grow.
_SQLITE_NO_ROOM: Final = frozenset({13, 10})
#: Words for a full disk in messages of the Delta library, which has neither error numbers nor a class for it.
_NO_ROOM_WORDS: Final = ("No space left", "ENOSPC", "os error 28")


def describe_unknown_name(kind: str, name: str, valid_names: Collection[str]) -> str:
    """Returns a message that ``name`` is no valid ``kind``, with similar and all valid names."""
    similar = get_close_matches(name, valid_names, 3)
    hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
    return f"there is no {kind} {name[:120]}{hint}; there are {', '.join(valid_names)}"


def disk_is_full(error: BaseException) -> bool:
    """Whether ``error``, or the error that it wraps (``__cause__`` or ``orig``), is about a full disk.

    Only this function decides by the message of an error, and only for errors without a number or class.
    """
    inner = getattr(error, "orig", None) or error.__cause__
    if isinstance(inner, BaseException) and disk_is_full(inner):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _NO_ROOM
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in _SQLITE_NO_ROOM
    return any(words in str(error) for words in _NO_ROOM_WORDS)


@contextmanager
def disk_trouble(path: Path) -> Iterator[None]:
    """Turns an ``OSError`` inside the block into a ``PlaceFault`` about ``path`` that says what to do."""
    try:
        yield
    except OSError as error:
        advice = f"Check that {path.parent} can be written to"
        if error.errno in _NO_ROOM:
            advice = "Free some space and run it again: completed work is kept, and the run continues from there"
        raise PlaceFault(f"{path} cannot be written: {error.strerror or error}", advice) from error
