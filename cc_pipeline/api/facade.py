"""The wrapper of every public Python function: it rejects unknown keywords, and its errors advise keywords and methods
where the command line advises flags and commands."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial, wraps
from typing import Final, ParamSpec, TypeVar

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings.reading import override_names

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Flags whose keyword has another name or a value of its own.
_KEYWORDS: Final = {
    "add": "extend=True",
    "allow-gaps": "max_index_gaps=1",
    "column": "columns",
    "crawl": "crawls",
    "home": "cc_pipeline.open(…)",
    "language": "languages",
    "table": "tables",
    "wait": "wait=float('inf')",
}
#: Flags that take no value.
_SWITCHES: Final = frozenset("yes replace allow-missing guard-formulas known-only keep-copies extend".split())
#: Flags with their values as they appear in advice: a pattern for the value of each.
_VALUES: Final = {
    "crawl": r"(?:CC-[\w-]+|newest|all|CRAWL|…)",
    "subset": r"(?:warc|crawldiagnostics|robotstxt)",
    "max-crawls": r"\d+",
    "name": r"[\w-]+",
    "index": r"(?:parquet|zipnum|btree)",
    "home": r"FOLDER",
    "format": r"[\w-]+(?:\|[\w-]+)+",
}
_LIST_KEYWORDS: Final = {"crawl": "crawls", "subset": "subsets"}
#: A word that is no flag and does not begin another command, so that each word is read once.
_TARGET: Final = r"(?!-|\S*?cc-pipeline )\S++"
#: A run with its targets and crawls. With a further flag after them no method can be named.
_RUN: Final = re.compile(
    rf"cc-pipeline run (?P<targets>{_TARGET}(?: {_TARGET})*+)(?P<crawls>(?: (?:--crawl|-c) {_VALUES['crawl']})++)(?! -)"
)
_ADD_CAPTURES: Final = re.compile(r"cc-pipeline files captures (?P<file>\S+) --name (?P<name>[\w-]+)")
#: Commands without a Python method stay as they are, with their flags, up to the end of a clause.
_COMMAND: Final = re.compile(r"(?:cc-pipeline (?!run\b(?! .*--)|sql\b)[^.,;()]*)")
#: The flag has no keyword: ``home.lookup`` and ``home.add_captures`` do not harvest.
_HARVEST_HINT: Final = "(or add --harvest to this command)"
_FLAG: Final = re.compile(r"(?<![\w-])--(?P<name>[a-z][a-z-]*[a-z])")


class WrongKeyword(UserInputError, TypeError):
    """The called function has no such keyword."""


def public(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes ``function`` a public Python function. One with ``**`` takes settings by their names."""
    name = _find_python_name(function)
    parameters = inspect.signature(function).parameters.values()
    keywords = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    takes_settings = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        for keyword in kwargs:
            if keyword not in keywords and not (takes_settings and keyword in override_names()):
                allowed = [
                    allowed_name for allowed_name in keywords if allowed_name not in ("self", "home", "reporter")
                ]
                raise WrongKeyword(_wrong_keyword(name, keyword, allowed, takes_settings=takes_settings))
        with advice_for_python():
            return function(*args, **kwargs)

    return called


@contextmanager
def advice_for_python() -> Iterator[None]:
    """Rewrites the errors that leave the block for Python."""
    try:
        yield
    except EnvironmentFault as fault:
        fault.problem, fault.advice = translate_for_python(fault.problem), translate_for_python(fault.advice)
        fault.args = (f"{fault.problem}\n{fault.advice}" if fault.advice else fault.problem,)
        raise
    except UserInputError as error:
        error.args = tuple(
            translate_for_python(argument) if isinstance(argument, str) else argument for argument in error.args
        )
        raise


def translate_for_python(text: str) -> str:
    """Replaces flags and commands in a message by keywords and methods. A command without a method stays."""
    text = "".join(part.rstrip(" ") for part in text.split(_HARVEST_HINT)) if _HARVEST_HINT in text else text
    text = _RUN.sub(lambda match: _run_call(match["targets"], match["crawls"]), text)
    text = _ADD_CAPTURES.sub(lambda match: f"home.add_captures({match['file']!r}, {match['name']!r})", text)
    text = re.sub(r"cc-pipeline (run|sql)(?=[.,;):]| for these| then|$)", r"home.\1", text)
    parts, end = [], 0
    for command in _COMMAND.finditer(text):
        parts += [_keywords_in(text[end : command.start()]), command[0]]
        end = command.end()
    return "".join([*parts, _keywords_in(text[end:])])


def _find_python_name(function: Callable[..., object]) -> str:
    """Returns the name that a person wrote: ``home.run``, ``cc_pipeline.open``, ``dataset``."""
    owner, _, name = function.__qualname__.rpartition(".")
    return f"home.{name}" if owner == "Home" else {"open_home": "cc_pipeline.open"}.get(name, name)


def _wrong_keyword(name: str, keyword: str, allowed: Sequence[str], *, takes_settings: bool) -> str:
    candidates = [*allowed, *override_names()] if takes_settings else allowed
    near = get_close_matches(keyword, candidates, 1, 0.5)
    alternatives = f"it takes {', '.join(allowed)}" if allowed else "it takes none"
    if keyword in override_names():
        alternatives += f"; the setting {keyword} is a keyword of cc_pipeline.open()"
    elif takes_settings:
        alternatives += ", and settings by their names (docs/settings.md)"
    return f"{name}() has no keyword {keyword!r}; {f'did you mean {near[0]!r}? ' if near else ''}{alternatives}"


def _run_call(targets: str, crawls: str) -> str:
    try:
        target_list = shlex.split(targets)
    except ValueError:
        target_list = targets.split()
    ids = re.findall(_VALUES["crawl"], crawls)
    return f"home.run({_format_values(target_list)}, {_format_values(ids)})"


def _format_values(values: Sequence[str]) -> str:
    if values == ["…"]:
        return "…"
    return _quoted(values[0]) if len(values) == 1 else _format_list(values)


def _format_list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, values))}]"


def _quoted(value: str) -> str:
    return f'"{value}"'


def _keywords_in(text: str) -> str:
    text = re.sub(r"(?<![\w-])-c (?=CC-)", "--crawl ", text)
    for flag, value in _VALUES.items():
        pattern = rf"--{flag} ({value})(?: --{flag} (?:{value}))*"
        text = re.sub(pattern, partial(_keyword_with_values, flag), text)
    return _FLAG.sub(lambda match: _keyword(match["name"]), text)


def _keyword_with_values(flag: str, match: re.Match[str]) -> str:
    values = match[0].split()[1::2]
    if flag == "home":
        return f"cc_pipeline.open({_quoted(values[0])})"
    if flag in _LIST_KEYWORDS:
        return f"{_LIST_KEYWORDS[flag]}={_format_values(values) if flag == 'crawl' else _format_list(values)}"
    [value] = values
    return f"{flag.replace('-', '_')}={value if value.isdecimal() else _quoted(value)}"


def _keyword(flag: str) -> str:
    name = flag.replace("-", "_")
    return f"{name}=True" if flag in _SWITCHES else _KEYWORDS.get(flag, name)
