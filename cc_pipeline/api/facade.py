"""The wrapper of every public Python function: it prints advice as calls in Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from cc_pipeline.advice import ANY, Advice, Value, describe_command, printing
from cc_pipeline.settings.reading import override_names

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Options whose keyword has another name.
_KEYWORDS: Final = {
    "add": "extend",
    "allow_gaps": "max_index_gaps",
    "column": "columns",
    "crawl": "crawls",
    "language": "languages",
    "subset": "subsets",
    "table": "tables",
}
#: Switches whose keyword takes a value of its own.
_SWITCH_VALUES: Final = {"allow_gaps": "1", "wait": "float('inf')"}
#: Commands whose method has another name.
_METHOD_NAMES: Final = {"files captures": "add_captures"}


@dataclass(frozen=True, slots=True)
class _Method:
    """A public function as a person writes it (``home.run``), and the keywords that it takes."""

    name: str
    keywords: tuple[str, ...]
    takes_settings: bool

    def takes(self, keyword: str) -> bool:
        """Whether the function has this keyword, or takes settings and this is one."""
        return keyword in self.keywords or (self.takes_settings and keyword in override_names())


#: Methods of a home by their names.
_methods: dict[str, _Method] = {}


def public(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes ``function`` a public Python function. One with ``**`` takes settings by their names."""
    if function.__qualname__ == f"Home.{function.__name__}":
        parameters = inspect.signature(function).parameters
        takes_settings = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        _methods[function.__name__] = _Method(f"home.{function.__name__}", tuple(parameters), takes_settings)

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with printing(describe_call):
            return function(*args, **kwargs)

    return called


def describe_call(advice: Advice) -> str:
    """Returns the advice as Python: a call of a method, or keywords of the call that failed. A command that no method
    replaces is returned as it is typed into a shell."""
    options = advice.options
    if not advice.command:
        if home := options.get("home"):
            return f'cc_pipeline.open("{home}")'
        return ", ".join(_describe_keyword(name, value) for name, value in options.items())
    method = _methods.get(_METHOD_NAMES.get(advice.command, advice.command))
    if method is None or not all(method.takes(_KEYWORDS.get(name, name)) for name in options):
        return describe_command(advice)
    arguments = [_format_values(advice.arguments)] if advice.arguments else []
    keywords = [_describe_keyword(name, value) for name, value in options.items()]
    if not arguments and not keywords:
        return method.name
    return f"{method.name}({', '.join([*arguments, *keywords])})"


def _describe_keyword(name: str, value: Value) -> str:
    keyword = _KEYWORDS.get(name, name)
    if value is None:
        return keyword
    if value is True:
        return f"{keyword}={_SWITCH_VALUES.get(name, value)}"
    if isinstance(value, int):
        return f"{keyword}={value}"
    values = [value] if isinstance(value, str) else value
    return f"{keyword}={_format_list(values) if keyword == 'subsets' else _format_values(values)}"


def _format_values(values: Sequence[str]) -> str:
    return _format_text(values[0]) if len(values) == 1 else _format_list(values)


def _format_list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_format_text, values))}]"


def _format_text(text: str) -> str:
    if text == ANY:
        return text
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'
