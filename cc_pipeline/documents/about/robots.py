"""A page's rules for robots: ``meta`` tags for all or for one, ``X-Robots-Tag``, and the reservation of text and data
mining (TDMRep: ``tdm-reservation``, ``tdm-policy``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from cc_pipeline.documents.headers import header_values
from cc_pipeline.documents.page import Headers

_MAX_RULES = 50
_CHARS = 4_000
#: Directives that every robot knows, or that ask not to be used for training.
_KNOWN_WORDS = """
all index noindex follow nofollow none noarchive nocache nosnippet noimageindex notranslate indexifembedded
nositelinkssearchbox noai noimageai noml noodp noydir nopagereadaloud
"""
_PLAIN_DIRECTIVES = frozenset(_KNOWN_WORDS.split())
_WITH_VALUE = frozenset(
    {"max-snippet", "max-image-preview", "max-video-preview", "unavailable_after", "unavailable-after"}
)
_BOT = re.compile(
    r"[a-z0-9_.-]*(?:bot|bots|spider|crawler|slurp|teoma|google|bing|baidu|yandex|-ai|-extended)(?:-[a-z]+)?\Z"
)
_MEANING_OF_NONE = ("noindex", "nofollow")


class Robots(NamedTuple):
    """``rules`` as stated, ``global_directives`` the directives that bind every robot; ``reserved`` and ``policy`` of
    TDMRep. ``None`` if nothing is stated."""

    rules: list[dict[str, Any]] | None
    global_directives: list[str] | None
    reserved: bool | None
    policy: str | None


def robots(meta_tags: Iterable[Mapping[str, Any]], headers: Headers) -> Robots:
    """Reads tags and headers; a header's directives come first."""
    rules: list[dict[str, Any]] = []
    reserved = _reservation(next(iter(header_values(headers, "tdm-reservation")), None))
    policy = next(iter(header_values(headers, "tdm-policy")), None)
    for value in header_values(headers, "x-robots-tag")[:_MAX_RULES]:
        rules += _read_header_rules(value[:_CHARS])
    for tag in meta_tags:
        name = tag["attributes"].get("name")
        content = tag["content"]
        if not name or not content:
            continue
        name = name.strip().lower()
        if name == "tdm-reservation":
            reserved = _reservation(content) if reserved is None else reserved
        elif name == "tdm-policy":
            policy = policy or content.strip()
        elif name == "robots" or _is_bot(name[:60]):
            directives = _directives(content[:_CHARS])
            if directives and (name == "robots" or any(_is_directive(word) for word in directives)):
                rules.append({"source": "meta", "bot": None if name == "robots" else name, "directives": directives})
    global_directives: dict[str, None] = {}
    for rule in rules:
        if rule["bot"] is None:
            for directive in rule["directives"]:
                global_directives.update(dict.fromkeys(_MEANING_OF_NONE if directive == "none" else (directive,)))
    return Robots(
        rules[:_MAX_RULES] or None, list(global_directives) or None, reserved, policy[:_CHARS] if policy else None
    )


@lru_cache(maxsize=4096)
def _is_bot(name: str) -> bool:
    return _BOT.fullmatch(name) is not None


def _reservation(value: str | None) -> bool | None:
    return {"0": False, "1": True}.get(value.strip()) if value else None


def _is_directive(directive: str) -> bool:
    return directive in _PLAIN_DIRECTIVES or directive.partition(":")[0] in _WITH_VALUE


def _directives(text: str) -> list[str]:
    """Returns the directives of a comma-separated list in lower case, values after a colon without space."""
    directives: list[str] = []
    for part in text.split(","):
        name, colon, value = (piece.strip().lower() for piece in part.partition(":"))
        # search engines also accept spaces or semicolons in place of commas
        words = re.split(r"[\s;]+", name) if not colon else [name]
        if (
            words
            and words[0]
            and not _is_directive(words[0])
            and directives
            and directives[-1].startswith("unavailable")
        ):
            directives[-1] += ", " + part.strip().lower()  # a date with commas
        elif colon:
            directives.append(f"{name}:{value}")
        else:
            directives += [word for word in words if word]
    return list(dict.fromkeys(directives))[:_MAX_RULES]


def _read_header_rules(value: str) -> list[dict[str, Any]]:
    """Returns one rule a robot; the name before a directive applies to all directives after it."""
    bot: str | None = None
    rules: dict[str | None, list[str]] = {}
    for part in value.split(","):
        directive = part
        name, colon, directive_text = part.partition(":")
        lowered = name.strip().lower()
        if colon and lowered not in _WITH_VALUE and not _is_directive(lowered) and _is_token(lowered):
            bot, directive = lowered, directive_text
        rules.setdefault(bot, []).append(directive)
    return [
        {"source": "header", "bot": bot, "directives": directives}
        for bot, parts in rules.items()
        if (directives := _directives(",".join(parts)))
    ]


def _is_token(name: str) -> bool:
    return bool(name) and not name[0].isdigit() and " " not in name
