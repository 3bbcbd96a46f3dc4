"""Targets from typed text: a domain, host, page, prefix, suffix, or a named set of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from cc_pipeline.advice import ANY, option
from cc_pipeline.commoncrawl.domains import HostPort, is_icann_suffix, is_ip, quote, read_host, read_host_port
from cc_pipeline.commoncrawl.surt import resolved_parts
from cc_pipeline.commoncrawl.target import GIVEN_KIND, Target
from cc_pipeline.errors import UserInputError

#: The prefix of slugs of named sets; slugs of other targets may have it too.
SET_SLUG = "set-"
#: Kinds of targets whose slugs have only the kind and the name.
_READABLE_KINDS = frozenset(("host", "suffix", "tld"))
_SPEAKING = 80
_SAFE_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9-])?")
_UNSAFE_CHARACTERS = re.compile(r"[^a-z0-9.-]+|\.{2,}")


def place_slug(kind: str, place: HostPort) -> str:
    """Returns the slug of a host with an optional port: ``example.com``, ``example.com_8080``, ``host_www.x.org``."""
    if not _is_safe(place.host):
        return hashed_slug(kind, str(place))
    speaking = place.host if kind == "domain" else f"{kind}_{place.host}"
    return speaking if place.port is None else f"{speaking}_{place.port}"


def hashed_slug(kind: str, value: str) -> str:
    """Returns the slug of any value: its readable part, and a hash."""
    speaking = _UNSAFE_CHARACTERS.sub("-", value.lower()).strip(".-")[:_SPEAKING].rstrip(".-")
    digest = hashlib.sha256(f"{kind}:{value}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return "_".join(part for part in (kind, speaking, digest) if part)


def set_slug(name: str) -> str:
    """Returns the slug of a named set."""
    return SET_SLUG + name


def parse_named_captures(name: str) -> Target:
    """Returns the target of the captures added under a name. Raises ``UserInputError`` for an impossible name."""
    plain = name.strip().lower()
    if not _SET_NAME.fullmatch(plain):
        raise UserInputError(
            f"{quote(name)} cannot be the name of named captures; use up to 60 letters, digits, - and _ "
            f"({option(name='NAME')} if the file's name has other characters)"
        )
    return Target(GIVEN_KIND, plain, f"{GIVEN_KIND}_{plain}")


def _is_safe(value: str) -> bool:
    return len(value) <= _SPEAKING and _SAFE_SLUG.fullmatch(value) is not None and ".." not in value


_MAX_URL = 8192
_KIND = re.compile(r"([a-z]+):(?!//)(.*)", re.IGNORECASE | re.DOTALL)
_WEB_URL = re.compile(r"(https?)://?([^/?#\\]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_SET_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,58}[a-z0-9])?")
_REVERSED = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?:\.|/[!-~]*)?")
# In url: and prefix: members a comma belongs to the URL unless a space or another kind comes after it.
_MEMBER_END = re.compile(r",\s+|\s+|,(?=(?:domain|host|url|prefix|tld|suffix|rev):)|,$")

#: The meaningless end of a prefix, read backwards: an incomplete escape, asterisks, white space.
_INSIGNIFICANT_END = re.compile(r"(?:[0-9A-Fa-f]?%|\*|\s)++")
#: The word before the condition on a target's captures.
_WHERE = re.compile(r"(?<!\s)\s+where(?:\s+|$)", re.IGNORECASE)

#: A comment extends to the end of its line.
_COMMENT = re.compile(r"(?:^|\s)#")
_COMMENT_OR_QUOTES = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(?P<comment>(?:^|\s)#)")

# Most lines of a long list are a domain in normal form, which is its own slug.
_PLAIN_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_FILE_SET = re.compile(r"([^=]*)=\s*@(.*)", re.DOTALL)
#: Files of sets whose members are kept in memory.
_FILES_KEPT = 4


def parse_target(text: str, folder: Path | None = None) -> Target:
    """Parses the target in ``text``; ``docs/targets.md`` lists the kinds. ``parse_target(t.definition) == t``.

    ``folder`` has the file of ``set:name = @file``; without it no file is read, and such text is an error.
    Raises ``UserInputError`` with the fault and the correct form.
    """
    text = text.strip()
    if len(text) <= _SPEAKING and _PLAIN_DOMAIN.fullmatch(text) and not is_icann_suffix(text):
        return Target("domain", text, text, place=HostPort(text))
    if any(ord(character) < 32 or character == "\x7f" for character in text):
        raise UserInputError(f"{quote(text)} has a control character in it")
    if (split := _WHERE.search(text)) is not None:
        return parse_target(text[: split.start()], folder).where_too(text[split.end() :])
    match = _KIND.fullmatch(text)
    if match is None or is_ip(text) or _port_follows(match[1], match[2]):
        return _domain(text)
    kind, value = match[1].lower(), match[2].strip()
    if kind == "set" and (file_set := _FILE_SET.fullmatch(value)) is not None:
        return _set_in_file(file_set[1].strip(), file_set[2].strip(), folder)
    reader = _READERS.get(kind)
    if reader is None:
        if kind in ("http", "https"):
            return _domain(text)
        raise UserInputError(
            f"{quote(text)} begins with the unknown kind {kind!r}; kinds are {', '.join(_READERS)}. A domain needs no "
            "kind, as in example.com"
        )
    if not value:
        raise UserInputError(f"{quote(text)} has nothing after {kind}:")
    return reader(value)


def parse_target_lines(text: str, folder: Path | None = None) -> tuple[Target, ...]:
    """Parses the targets of a watch list, one a line; skips blank lines and ``#`` comments, drops repetitions.

    ``folder`` as for ``parse_target``. Raises ``UserInputError`` with every wrong line.
    """
    targets, wrong = right_and_wrong_lines(text, folder)
    if wrong:
        raise UserInputError("; ".join(wrong))
    return targets


def right_and_wrong_lines(text: str, folder: Path | None = None) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    """Does the same as :func:`parse_target_lines`: returns the targets of the readable lines, and the faults of the
    others."""
    targets: dict[str, Target] = {}
    wrong: list[str] = []
    for number, content in content_lines(text):
        try:
            target = parse_target(content, folder)
        except UserInputError as refused:
            wrong.append(f"line {number}: {refused}")
            continue
        earlier_target = targets.setdefault(target.slug, target)
        if earlier_target is not target and earlier_target.version != target.version:
            wrong.append(f"line {number}: the set {target.value!r} is defined on an earlier line with other members")
    return tuple(targets.values()), tuple(wrong)


def set_slug_in(line: str) -> str | None:
    """Returns the slug of the set that a line of a watch list defines; ``None`` for any other line. Reads no file."""
    for _, content in content_lines(line):
        match = _KIND.fullmatch(content)
        if match is not None and match[1].lower() == "set":
            name, *where = _WHERE.split(match[2], maxsplit=1)
            slug = set_slug(name.partition("=")[0].strip().lower())
            return Target("set", slug, slug).where_too(where[0]).slug if where else slug
    return None


def to_run(slug: str, target_text: str) -> str:
    """Returns the text that runs the target of ``target_text``. The name of a set is enough for lookups, but not for a
    run."""
    # slugs of other targets, and of conditions, have a dot
    only_named = slug.startswith(SET_SLUG) and "." not in slug and "=" not in target_text
    return f"set:{slug.removeprefix(SET_SLUG)} = example.com, example.org" if only_named else target_text or slug


def parse_slug(text: str) -> str:
    """Returns the slug of the target in ``text``; for a set its name is enough (``set:press``), and no file is read.

    Raises ``UserInputError`` as ``parse_target`` does.
    """
    return set_slug_in(text) or parse_target(text).slug


def parse_key(key: str) -> Target:
    """Returns the target that a partition key means by itself: a domain or an address, or ``host_``, ``suffix_`` or
    ``tld_`` and a name. The target of any other text has another slug. Raises ``UserInputError`` for a text that is no
    target."""
    kind, separator, name = key.partition("_")
    return parse_target(f"{kind}:{name}" if separator and kind in _READABLE_KINDS else key)


def text_of_key(key: str) -> str:
    """Returns the text that names the target of a partition key in a command; ``…`` if the key does not tell."""
    try:
        target = parse_key(key)
    except UserInputError:
        return ANY
    return target.definition if target.slug == key else ANY


def content_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields numbers (from 1) and texts of the lines with content."""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        content = (_without_comment(line) if "#" in line else line).strip()
        if content:
            yield number, content


def _without_comment(line: str) -> str:
    """Returns a line up to its comment, which cannot begin in quotes of a condition. Elsewhere a quote is a letter."""
    first, where = _COMMENT.search(line), _WHERE.search(line)
    if first is None or where is None or first.start() < where.end():
        return line if first is None else line[: first.start()]
    parts = _COMMENT_OR_QUOTES.finditer(line, where.end())
    return next((line[: part.start()] for part in parts if part["comment"] is not None), line)


def _domain(text: str) -> Target:
    name = _bare_name(text)
    place = read_host_port(name)
    if not place.is_ip and "." not in place.host:
        raise UserInputError(
            f"{quote(text)} has no dot; write tld:{place.host} for everything under a top-level domain, "
            f"host:{place.host} for a host of that name"
        )
    if not place.is_ip and place.port is None and is_icann_suffix(place.host):
        raise UserInputError(
            f"{quote(text)} is a public suffix, under which many organisations have their sites; write "
            f"suffix:{place.host} for all these sites, or host:www.{place.host} for one site"
        )
    return Target("domain", str(place), place_slug("domain", place), place=place)


def _bare_name(text: str) -> str:
    """Returns the name in ``text``: ``https://x.org/``, ``*.x.org``, ``.x.org`` mean ``x.org``; a path is an error."""
    web = _WEB_URL.fullmatch(text)
    name, tail = (web[2], web[3]) if web else (text, "")
    if not web:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|https?:", text):
            raise UserInputError(f"{quote(text)} is not an http:// or https:// address; Common Crawl has no others")
        cut = re.search(r"[/?#]", text)
        name, tail = (text[: cut.start()], text[cut.start() :]) if cut else (text, "")
    if tail not in ("", "/", "/*"):
        site = read_host_port(name)
        page = text if web else f"http://{text}"
        raise UserInputError(
            f"{quote(text)} is more than a host name; write url:{page} for that page, prefix:{page} for what lies "
            f"under it, or {site} for the whole site"
        )
    return re.sub(r"^\*?\.(?=[^.])", "", name)


def _host(value: str) -> Target:
    place = read_host_port(_bare_name(value))
    return Target("host", str(place), place_slug("host", place), place=place)


def _tld(value: str) -> Target:
    name = read_host(value.removeprefix("*").removeprefix("."))
    if "." in name or ":" in name or name.isdigit():
        hint = (
            f"write suffix:{name} for all hosts under that suffix"
            if _PLAIN_DOMAIN.fullmatch(name)
            else "write it as in tld:org"
        )
        raise UserInputError(f"{quote(value)} is not a top-level domain; {hint}")
    place = HostPort(name)
    return Target("tld", name, place_slug("tld", place), place=place)


def _suffix(value: str) -> Target:
    place = HostPort(read_host(value.removeprefix("*").removeprefix(".")))
    if place.is_ip:
        raise UserInputError(f"{quote(value)} is an IP address, which has nothing under it; write host:{place}")
    return Target("suffix", place.host, place_slug("suffix", place), place=place)


def _url(value: str) -> Target:
    url = _read_url(value)
    return Target("url", url, hashed_slug("url", url))


def _prefix(value: str) -> Target:
    url = _read_url(value)
    if end := _INSIGNIFICANT_END.match(url[::-1]):
        url = url[: len(url) - end.end()]
    assert resolved_parts(url) is not None, "it has a host"
    return Target("prefix", url, hashed_slug("prefix", url))


def _read_url(value: str) -> str:
    """Returns ``value`` as an absolute URL with a normal host; without a scheme it is an ``http`` URL."""
    if len(value) > _MAX_URL:
        raise UserInputError(f"{quote(value)} is {len(value)} characters long; the longest URL accepted is {_MAX_URL}")
    match = _WEB_URL.fullmatch(value if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value) else f"http://{value}")
    if match is None:
        raise UserInputError(f"{quote(value)} is not an http:// or https:// address; Common Crawl has no others")
    scheme, authority, tail = match.groups()
    if "@" in authority:
        raise UserInputError(f"{quote(value)} has a user name; URLs in the index have none, so remove the user name")
    place = read_host_port(authority)
    tail = tail.strip().replace(" ", "%20")
    return f"{scheme.lower()}://{place}{tail if tail.startswith('/') else '/' + tail}"


def _rev(value: str) -> Target:
    members = _distinct(tuple(_reversed_host(part.strip()) for part in value.split(",") if part.strip()))
    if not members:
        raise UserInputError(f"{quote('rev:' + value)} has nothing after rev:")
    if len(members) == 1:
        return members[0]
    value_list = ", ".join(member.value for member in members)
    return Target("set", value_list, hashed_slug("rev", value_list), members)


def _reversed_host(value: str) -> Target:
    """Returns the target of a reversed host (``com.nytimes.blogs``), which a path may follow."""
    host, slash, path = value.partition("/")
    name = host.lower()
    if not _REVERSED.fullmatch(name + slash + path):
        raise UserInputError(f"{quote(value)} is not a reversed host; write it like rev:com.nytimes.blogs")
    text = name + slash + path
    return Target("rev", text, f"rev_{text}" if _is_safe(text) else hashed_slug("rev", text))


def _set(value: str) -> Target:
    name, equals, member_list = (part.strip() for part in value.partition("="))
    texts = _member_texts(member_list)
    if not equals or not texts:
        raise UserInputError(
            f"{quote('set:' + value)} has no members; write set:press = bbc.co.uk, host:www.nytimes.com"
        )
    slug = _slug_named(name)
    members = _distinct(tuple(parse_target(part) for part in texts))
    if any(member.kind in _NO_MEMBERS for member in members):
        raise UserInputError(f"{quote('set:' + name)} has a set, a list or captures in it; write out its members")
    return Target("set", name.lower(), slug, members, name=_capitals(name))


def _capitals(name: str) -> str:
    """Returns the name of a set if it has capital letters: names that differ only in these would be one partition."""
    return "" if name == name.lower() else name


def _slug_named(name: str) -> str:
    if not _SET_NAME.fullmatch(name.lower()):
        raise UserInputError(
            f"{quote(name)} cannot name a set; use up to 60 letters, digits, - and _, with a letter or digit at both "
            "ends"
        )
    return set_slug(name.lower())


def _set_in_file(name: str, file: str, folder: Path | None) -> Target:
    slug = _slug_named(name)
    if not file or folder is None:
        raise UserInputError(
            f"{quote(f'set:{name} = @{file}')} names a file, which only commands with targets and the watch list "
            "(domains.txt) can read; write the members out instead"
        )
    path = folder / file
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UserInputError(f"{path}, line {line} is not UTF-8 text; save the file as UTF-8") from None
    except OSError as error:
        raise UserInputError(
            f"the file with the members of {quote('set:' + name)} cannot be read: {path}: {error.strerror}"
        ) from None
    return _set_of_text(name, slug, file, str(path), text)


@lru_cache(maxsize=_FILES_KEPT)
def _set_of_text(name: str, slug: str, file: str, path: str, text: str) -> Target:
    """Parses the file of a set. Cached by its text: a sensor reads it every minute, and 100,000 lines take a second."""
    members: dict[str, Target] = {}
    wrong: list[str] = []
    for number, content in content_lines(text):
        try:
            target = parse_target(content)
            if target.kind in _NO_MEMBERS:
                raise UserInputError(
                    f"{quote(content)} is a set, a list or captures, which cannot be a member of a set; name its "
                    "members"
                )
            if target.where:
                raise UserInputError(
                    f"{quote(content)} has a condition, and members of a set have none; write one condition for all "
                    "members after the set"
                )
        except UserInputError as refused:
            wrong.append(f"line {number}: {refused}")
        else:
            members.setdefault(target.slug, target)
    if wrong:
        raise UserInputError(f"{path}, " + "; ".join(wrong))
    if not members:
        raise UserInputError(
            f"{path} lists no targets, so {quote('set:' + name)} has no members; write one target per line"
        )
    return Target("set", name.lower(), slug, tuple(members.values()), file=file, name=_capitals(name))


def _member_texts(member_list: str) -> list[str]:
    texts: list[str] = []
    for piece in _MEMBER_END.split(member_list):
        is_url = piece.lower().startswith(("url:", "prefix:"))
        texts += [part for part in ([piece] if is_url else piece.split(",")) if part]
    return texts


def _distinct(members: tuple[Target, ...]) -> tuple[Target, ...]:
    return tuple({member.slug: member for member in members}.values())


def _port_follows(name: str, port_text: str) -> bool:
    """Whether a colon precedes a port: ``localhost:8080`` is a host with a port, not a kind."""
    return name.lower() not in _READERS and re.fullmatch(r"[0-9]+/?", port_text) is not None


_READERS: dict[str, Callable[[str], Target]] = {
    "domain": _domain,
    "host": _host,
    "url": _url,
    "prefix": _prefix,
    "tld": _tld,
    "suffix": _suffix,
    "rev": _rev,
    "set": _set,
    GIVEN_KIND: parse_named_captures,
}
#: Kinds that cannot be members of a set.
_NO_MEMBERS = ("set", GIVEN_KIND)
