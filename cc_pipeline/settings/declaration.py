"""Declarations of settings: each is a field of a frozen dataclass with type, default, check and help.

Reading, checking, ``cc-pipeline settings``, the texts for other processes, the notes of a home, and the tables in docs/
use the declaration. Extensions declare settings in the same way (``cc_pipeline/extension.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, partial
from typing import Any, Final, TypeVar, get_type_hints

from cc_pipeline.errors import UserInputError
from cc_pipeline.settings.environment import PREFIX, number_in, text_in, words_in, yes_in

_T = TypeVar("_T")
#: Returns what is wrong with a value, as the end of a sentence that begins with the variable; ``None`` if it is valid.
Check = Callable[[Any], str | None]

_KEY: Final = "cc_pipeline.setting"
#: Readers of variables, by the type of the field.
_READERS: Final[dict[Any, Callable[[Mapping[str, str], str], Any]]] = {
    str: text_in,
    str | None: text_in,
    bool: yes_in,
    int: partial(number_in, kind=int),
    int | None: partial(number_in, kind=int),
    float: partial(number_in, kind=float),
    float | None: partial(number_in, kind=float),
    tuple[str, ...]: words_in,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The parts of a declaration besides name, type and default; :func:`setting` explains each."""

    help: str
    default_text: str
    check: Check | None
    is_secret: bool
    decides_rows: bool
    is_of_this_machine: bool
    has_own_reader: bool


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declared setting. ``field`` is its field; ``name`` has the name of its extension, if any, as prefix."""

    field: str
    name: str
    kind: Any
    default: Any
    facts: Facts

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper()

    def read(self, env: Mapping[str, str]) -> Any:
        """Reads the variable; ``None`` if it is unset. Raises ``UserInputError`` for a value of another type."""
        return _READERS[self.kind](env, self.name.upper())


# typed as the value itself, so that a field keeps the type that it is declared with
def setting(
    default: _T = MISSING,  # type: ignore[assignment]
    *,
    help: str,
    default_text: str = "",
    check: Check | None = None,
    is_secret: bool = False,
    decides_rows: bool = False,
    is_of_this_machine: bool = False,
    has_own_reader: bool = False,
) -> _T:
    """Declares a field as a setting.

    ``help`` is the text of its row in docs/ (Markdown), ``default_text`` the description of the default there, if the
    value is not enough. ``check`` is called with every value except ``None`` and empty text. A secret (``is_secret``)
    is shown nowhere and sent to no other process. If rows depend on it (``decides_rows``), it belongs to the home once
    rows were made with it. A value of this machine (``is_of_this_machine``) is not sent to other processes. A setting
    that ``has_own_reader`` is read by its own code in the core, not by its type.
    """
    facts = Facts(
        help=help,
        default_text=default_text,
        check=check,
        is_secret=is_secret,
        decides_rows=decides_rows,
        is_of_this_machine=is_of_this_machine,
        has_own_reader=has_own_reader,
    )
    declared_field: _T = field(default=default, repr=not is_secret, metadata={_KEY: facts})
    return declared_field


def declarations(kind: type, extension: str = "") -> tuple[Declaration, ...]:
    """Returns the declared settings of a dataclass, in order; other fields are left out.

    Raises ``TypeError`` for a type without a reader.
    """
    return _declarations(kind, extension)


@cache
def _declarations(kind: type, extension: str) -> tuple[Declaration, ...]:
    kinds = get_type_hints(kind)
    begin = f"{extension}_" if extension else ""
    declared = []
    for declared_field in fields(kind):
        facts = declared_field.metadata.get(_KEY)
        if facts is None:
            continue
        if not facts.has_own_reader and kinds[declared_field.name] not in _READERS:
            raise TypeError(
                f"{declared_field.name} is declared as {declared_field.type!r}; a setting is "
                f"{', '.join(map(_type_name, _READERS))}"
            )
        declared.append(
            Declaration(
                declared_field.name,
                begin + declared_field.name,
                kinds[declared_field.name],
                declared_field.default,
                facts,
            )
        )
    return tuple(declared)


def read_declared(kind: type[_T], env: Mapping[str, str]) -> _T:
    """Reads and checks the settings of a dataclass whose fields are all read by their types.

    Raises ``UserInputError`` naming the variable."""
    return check_values(kind(**_values(declarations(kind), env)))


def check_values(values: _T, extension: str = "") -> _T:
    """Returns the same values. Raises ``UserInputError`` with the variable of an invalid one."""
    for declaration in declarations(type(values), extension):
        value, check = getattr(values, declaration.field), declaration.facts.check
        problem = None if check is None or value is None or value == "" else check(value)
        if problem is not None:
            raise UserInputError(f"{declaration.variable} {problem}")
    return values


def read_extension(extension: str, kind: type, env: Mapping[str, str], overrides: dict[str, Any]) -> Any:
    """Reads and checks the settings of an extension; removes those of the extension from ``overrides``.

    Raises ``UserInputError`` with the variable."""
    declared = declarations(kind, extension)
    own_overrides = {
        declaration.field: overrides.pop(declaration.name) for declaration in declared if declaration.name in overrides
    }
    return check_values(kind(**{**_values(declared, env), **own_overrides}), extension)


def _values(declared: tuple[Declaration, ...], env: Mapping[str, str]) -> dict[str, Any]:
    read = {declaration.field: declaration.read(env) for declaration in declared}
    return {name: value for name, value in read.items() if value is not None}


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and kind is not tuple[str, ...] else str(kind)


def as_text(value: object) -> str:
    """Returns a value as the text of its variable, so that the same value is read again; empty for ``None``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def is_choice(*names: str) -> Check:
    """Returns a check for one of the names."""
    return lambda value: None if value in names else f"is {value!r}; choose one of {', '.join(names)}"


def is_share(value: float) -> str | None:
    """Checks for a number from 0 to 1."""
    return None if 0 <= value <= 1 else f"must be a share from 0 to 1, not {value:g}"


def is_above_zero(value: float) -> str | None:
    """Checks for a finite number above 0."""
    return None if 0 < value < math.inf else f"must be a number above 0, not {value}"


def has_minimum(minimum: int, explanation: str) -> Check:
    """Returns a check for a number of ``minimum`` or more."""
    return lambda value: None if value >= minimum else f"must be {minimum} or more: {explanation}"
