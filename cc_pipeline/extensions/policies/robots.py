"""Parses a robots.txt into rules and signals, by RFC 9309.

Signals are ``Content-Signal`` (Cloudflare, 2025), ``Content-Usage`` (draft-ietf-aipref-attach), ``License`` (RSL 1.0)
and ``Crawl-delay``. DuckDB matches rules with paths (``policies/policy_queries.py``), so that exported files can answer
too. So this module returns rows, which no library does (docs/decisions/0009-robots-txt-as-rows.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.extensions.policies.usage_signals import LABELS, VERDICTS, parse_signal

#: Maximum bytes to parse. RFC 9309 requires at least 500 KiB, and Common Crawl stores 1 MiB.
MAX_BYTES: Final = 1 << 20
#: Maximum pairs of an agent and a line of one file.
MAX_PAIRS: Final = 100_000

_BOM = b"\xef\xbb\xbf"
_LINE_BREAK = re.compile(rb"\r\n|\r|\n")
_NAMES: Final = {
    **dict.fromkeys(("user-agent", "useragent", "user agent"), "user-agent"),
    "allow": "allow",
    **dict.fromkeys(("disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"), "disallow"),
    **dict.fromkeys(("content-signal", "content-signals"), "content-signal"),
    "content-usage": "content-usage",
    "license": "license",
    **dict.fromkeys(("crawl-delay", "crawl delay"), "crawl-delay"),
}
#: RFC 9309 allows letters, ``_`` and ``-``; text after another character (a version) is not part of the token. Digits
#: and points are kept for names such as AI2Bot.
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
_PERCENT_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_SPACE = " \t\x0b\x0c"


@dataclass(frozen=True, slots=True)
class Line:
    """One rule or signal. ``agents`` are the lower-case tokens of its group (empty: before any group). ``path`` is a
    pattern in normal form (``None``: all paths), ``value`` the written value, ``uses`` the subjects, and ``permission``
    is ``allow`` or ``disallow`` (``None``: neither)."""

    number: int
    agents: tuple[str, ...]
    signal: str
    path: str | None = None
    value: str | None = None
    uses: tuple[str, ...] = ()
    permission: str | None = None


@dataclass(slots=True)
class _Group:
    agents: list[str] = field(default_factory=list)
    lines: list[tuple[int, str, str]] = field(default_factory=list)
    has_rules: bool = False


def parse_robots(body: bytes) -> list[Line]:
    """Parses the rules and signals of a robots.txt, group by group. Each group begins with a line ``user-agent``, so
    that a group without rules is known too. No input is an error.

    A file with more than ``MAX_PAIRS`` pairs of agents and lines is cut there, and a last line ``cut`` records it.
    """
    parsed_lines: list[Line] = []
    pairs = 0
    for group in _groups(body):
        agents = tuple(dict.fromkeys(group.agents))
        lines = [Line(0, agents, "user-agent")] if agents else []
        for number, name, value in group.lines:
            lines += _lines(number, agents, name, value)
        pairs += len(lines) * max(1, len(agents))
        if pairs > MAX_PAIRS:
            return [*parsed_lines, Line(0, (), "cut")]
        parsed_lines += lines
    return parsed_lines


def _groups(body: bytes) -> Iterator[_Group]:
    group = _Group()
    for number, name, value in _records(body):
        if name == "user-agent":
            if group.has_rules or not group.agents:
                yield group
                group = _Group()
            if token := _token(value):
                group.agents.append(token)
        else:
            group.lines.append((number, name, value))
            # other records do not end a group (RFC 9309, 2.2.4)
            group.has_rules = group.has_rules or name in ("allow", "disallow")
    yield group


def _records(body: bytes) -> Iterator[tuple[int, str, str]]:
    start = 0
    # Some files have only the beginning of a byte order mark.
    while start < len(_BOM) and body[start : start + 1] == _BOM[start : start + 1]:
        start += 1
    for number, raw in enumerate(_LINE_BREAK.split(body[start:MAX_BYTES]), start=1):
        text = raw.partition(b"#")[0].decode("utf-8", "surrogateescape").strip(_SPACE + "\x00")
        name, colon, value = text.partition(":")
        if not colon:
            # The colon may be missing, as in "disallow /".
            name, *words_after = text.split(maxsplit=1)[:2] or [""]
            if not words_after or len(words_after[0].split()) > 1:
                continue
            value = words_after[0]
        record_name = _NAMES.get(name.strip(_SPACE).lower())
        if record_name is not None:
            yield number, record_name, value.strip(_SPACE)


def _token(value: str) -> str:
    if value.split(maxsplit=1)[:1] == ["*"]:
        return "*"
    match = _TOKEN.match(value)
    return match[0].lower() if match else ""


def _lines(number: int, agents: tuple[str, ...], name: str, value: str) -> Iterator[Line]:
    if name in ("allow", "disallow"):
        # an empty one rules nothing, and so does one before any group
        if value and agents:
            yield Line(number, agents, name, normal_pattern(value), _printable(value), ("access",), name)
    elif name in LABELS:
        yield from _signals(number, agents, name, value)
    elif value:
        yield Line(number, agents, name, None, _printable(value))


def _signals(number: int, agents: tuple[str, ...], name: str, value: str) -> Iterator[Line]:
    """Yields one line for each label. Signals of a group belong to its agents, and signals before any group belong to
    all.
    """
    path = None
    if name == "content-usage" and value.startswith(("/", "*")):
        pattern, _, value = value.partition(" ")
        path = normal_pattern(pattern)
    for label, word in parse_signal(name, _printable(value)):
        uses, verdict = LABELS[name].get(label), VERDICTS[name].get(word)
        is_understood = uses is not None and verdict is not None
        yield Line(
            number,
            agents or ("*",),
            name,
            path,
            f"{label}={word}",
            uses or () if is_understood else (),
            verdict if is_understood else None,
        )


def _printable(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def normal_pattern(value: str) -> str:
    """A pattern with normalized escapes. ``*`` and a final ``$`` keep their meaning; another ``$`` is a character."""
    return _normal(value[:-1].replace("$", "%24") + value[-1:])


def _normal(text: str) -> str:
    """Escapes octets outside of ASCII and unescapes other characters, except those with a meaning: ``%``, ``*``, ``$``,
    ``#``, and ``/`` and ``?`` in a path. ``policies/policy_queries.py`` does the same in SQL.
    """
    octets = text.encode("utf-8", "surrogateescape")
    plain = "".join(chr(octet) if 0x20 < octet < 0x7F else f"%{octet:02X}" for octet in octets)
    path, mark, query = plain.partition("?")
    return _unescaped(path, "%*$#/?") + mark + _unescaped(query, "%*$#")


def _unescaped(text: str, kept_escapes: str) -> str:
    def unescape(escape: re.Match[str]) -> str:
        character = chr(int(escape[1], 16))
        return character if "!" <= character <= "~" and character not in kept_escapes else escape[0].upper()

    return _PERCENT_ESCAPE.sub(unescape, text)
