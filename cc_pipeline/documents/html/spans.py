"""Text with its styles as CommonMark: emphasis, code, links, mathematics, and escapes.

Styles belong to pieces of text, not to a tree: overlapping or repeated markup is written once. If signs would not be
read as emphasis at their position (before a mark, inside a Chinese sentence), tags are used, which CommonMark allows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

Kind = Literal["text", "raw", "break"]


class Style(NamedTuple):
    """The style of a text. ``link`` is an address and a number of its own, ``code`` the number of its element, 0 for
    none."""

    link: tuple[str, int] | None = None
    strong: bool = False
    emphasis: bool = False
    struck: bool = False
    sup: bool = False
    sub: bool = False
    code: int = 0


class Piece(NamedTuple):
    """A piece of text in one style. ``raw`` is Markdown already: an image, mathematics. A ``break`` ends a line."""

    text: str
    style: Style
    kind: Kind = "text"


_SIGNS: Final = {"strong": ("**", "__"), "emphasis": ("*", "_"), "struck": ("~~",)}
_TAGS: Final = {"strong": "strong", "emphasis": "em", "struck": "del", "sup": "sup", "sub": "sub"}
#: From the outermost to the innermost.
_LEVELS: Final = ("link", "strong", "emphasis", "struck", "sup", "sub")

_SPECIAL = re.compile(r"[\\`<&\]]|\*+|_+|~+")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]*);")
_ASCII_MARKS: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
#: Beginnings of a line that would be a heading, a quote, a list, a rule, the line below a heading or a table's head, a
#: task.
_BEGINS = re.compile(
    r"(?P<mark>#{1,6}(?=\s|$)|>|[-+](?=\s|$)|=+(?=\s*$)|(?=[|:\s]*-)[-|:\s]++$|\[(?=[ xX]\]\s))"
    r"|(?P<number>\d{1,9})(?=[.)](?:\s|$))"
)
_RUN_OF_TICKS = re.compile("`+")
_LAST_SIGNS = re.compile(r"(^|\s)(#+)$")


def written(pieces: Iterable[Piece], *, cell: bool = False, line: bool = False) -> list[str]:
    """Returns the lines of a paragraph. In a ``line`` (a heading) breaks become spaces, in a ``cell`` of a table tags;
    there bars are escaped."""
    line_break = " " if line else "<br>" if cell else "\n"
    text = _joined(_nested(_spaced(pieces)), line_break)
    if cell:
        return [text.replace("|", "\\|")]
    if line:
        return [_LAST_SIGNS.sub(r"\1\\\2", text)]
    lines = [_escape_beginning(text_line) for text_line in text.split("\n")]
    return [text_line + "\\" for text_line in lines[:-1]] + lines[-1:]


def _escape_beginning(line: str) -> str:
    beginning = _BEGINS.match(line)
    if beginning is None:
        return line
    end = beginning.end() if beginning["number"] else 0
    return f"{line[:end]}\\{line[end:]}"


def _spaced(pieces: Iterable[Piece]) -> list[Piece]:
    """Collapses white space and moves it out of styles that end at it; merges pieces of one style; drops breaks at the
    start and end."""
    spaced: list[Piece] = []
    space = broken = False
    for piece in pieces:
        if piece.kind == "break":
            broken = True
            continue
        text, style = piece.text, piece.style
        if piece.kind == "text":
            words = text.split()
            if not words:
                space = space or bool(text)
                continue
            space = space or text[0].isspace()
            ends_with_space = text[-1].isspace()
            text = " ".join(words)
        else:
            ends_with_space = False
        if spaced:
            last = spaced[-1]
            if broken:
                spaced.append(Piece("", _common(last.style, style), "break"))
            elif space:
                spaced.append(Piece(" ", _common(last.style, style)))
            elif last.style.code and style.code:
                # two adjacent spans would be read as one unclosed span
                style = style._replace(code=last.style.code)
        spaced.append(Piece(text, style, piece.kind))
        space, broken = ends_with_space, False
    merged: list[Piece] = []
    parts: list[str] = []
    for piece in spaced:
        if parts and piece.kind == "text" and merged[-1].kind == "text" and merged[-1].style == piece.style:
            parts.append(piece.text)
            continue
        if parts:
            merged[-1] = merged[-1]._replace(text="".join(parts))
        merged.append(piece)
        parts = [piece.text]
    if parts:
        merged[-1] = merged[-1]._replace(text="".join(parts))
    return merged


def _common(first: Style, second: Style) -> Style:
    if first == second:
        return first
    return Style(
        first.link if first.link == second.link else None,
        first.strong and second.strong,
        first.emphasis and second.emphasis,
        first.struck and second.struck,
        first.sup and second.sup,
        first.sub and second.sub,
        first.code if first.code == second.code else 0,
    )


class _Sign(NamedTuple):
    """The beginning or end of a style; ``mate`` is the index of its partner."""

    level: str
    opens: bool
    mate: int
    link: str = ""


def _nested(pieces: Sequence[Piece]) -> list[str | _Sign | None]:
    """Returns styles as nested signs with escaped text between them; ``None`` is a break."""
    items: list[str | _Sign | None] = []
    open_signs: list[tuple[str, object, int]] = []
    for piece in pieces:
        styles = [(level, value) for level, value in zip(_LEVELS, piece.style, strict=False) if value]
        shared = 0
        while shared < min(len(styles), len(open_signs)) and styles[shared] == open_signs[shared][:2]:
            shared += 1
        _close(items, open_signs, shared)
        for level, value in styles[shared:]:
            open_signs.append((level, value, len(items)))
            items.append(_Sign(level, True, -1, value[0] if isinstance(value, tuple) else ""))
        if piece.kind == "break":
            items.append(None)
        elif piece.kind == "raw":
            items.append(piece.text)
        elif piece.style.code:
            items.append(_code(piece.text))
        else:
            items.append(_escaped(piece.text, linked=piece.style.link is not None))
    _close(items, open_signs, 0)
    return items


def _close(items: list[str | _Sign | None], open_signs: list[tuple[str, object, int]], depth: int) -> None:
    while len(open_signs) > depth:
        _, _, index = open_signs.pop()
        opening = items[index]
        assert isinstance(opening, _Sign)
        items[index] = opening._replace(mate=len(items))
        items.append(opening._replace(opens=False, mate=index))


def _joined(items: Sequence[str | _Sign | None], line_break: str) -> str:
    parts: list[str] = []
    last = " "
    closing_signs: dict[int, str] = {}
    for index, item in enumerate(items):
        if item is None:
            part = line_break
        elif isinstance(item, str):
            part = item
        elif item.level == "link":
            if item.opens and last == "!" and parts[-1].endswith("!"):
                parts[-1] = parts[-1][:-1] + "\\!"
            part = "[" if item.opens else f"]({_address(item.link)})"
        elif item.opens:
            part, closing_signs[item.mate] = _signs(items, index, last, closing_signs)
        else:
            part = closing_signs[index]
        if part:
            parts.append(part)
            last = part[-1]
    return "".join(parts)


def _signs(
    items: Sequence[str | _Sign | None], index: int, last: str, closing_signs: dict[int, str]
) -> tuple[str, str]:
    """Chooses the beginning and end of a style: the first signs that are read as such, else tags. Outer styles were
    chosen before; inner and later styles depend on this choice."""
    opening = items[index]
    assert isinstance(opening, _Sign)
    inside, last_inside = _first(items, index + 1, closing_signs), _last(items, opening.mate - 1)
    following = _first(items, opening.mate + 1, closing_signs)
    for sign in _SIGNS.get(opening.level, ()):
        neighbours = (last, inside, last_inside, following)
        if sign[0] not in neighbours and _joins(inside, last, sign) and _joins(last_inside, following, sign):
            return sign, sign
    tag = _TAGS[opening.level]
    return f"<{tag}>", f"</{tag}>"


def _joins(inside: str, outside: str, sign: str) -> bool:
    """Whether a sign between the two characters is read as belonging to the inner one."""
    if inside.isspace():
        return False
    if sign[0] == "_" and not (outside.isspace() or outside in _ASCII_MARKS):
        return False
    return not _may_be_mark(inside) or outside.isspace() or outside in _ASCII_MARKS


def _may_be_mark(character: str) -> bool:
    # parsers differ in whether symbols are marks
    return character in _ASCII_MARKS or unicodedata.category(character)[0] in "PS"


def _first(items: Sequence[str | _Sign | None], index: int, closing_signs: dict[int, str]) -> str:
    """Returns the first character from an index on; any mark for a style without a choice yet."""
    item = items[index] if index < len(items) else None
    if isinstance(item, _Sign):
        return "]" if item.level == "link" else closing_signs.get(index, "<")[0]
    return item[0] if item else " "


def _last(items: Sequence[str | _Sign | None], index: int) -> str:
    item = items[index]
    return item[-1] if isinstance(item, str) else "<" if item else " "


def _code(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in _RUN_OF_TICKS.findall(text)), default=0))
    if "`" in (text[0], text[-1]):
        text = f" {text} "
    return f"{fence}{text}{fence}"


def fence(text: str) -> str:
    """Returns the fence around a block of code: longer than any run of ticks in it."""
    return "`" * max(3, 1 + max((len(run) for run in _RUN_OF_TICKS.findall(text)), default=0))


def image_markdown(alt: str, address: str) -> str:
    """Returns an image as Markdown."""
    return f"![{_escaped(alt, linked=True)}]({_address(address)})"


def _address(url: str) -> str:
    url = _ENTITY.sub(lambda entity: "%26" + entity[0][1:], url).replace("\\", "%5C")
    return url if _balanced(url, "()") else url.replace("(", "%28").replace(")", "%29")


def _escaped(text: str, *, linked: bool = False) -> str:
    """Escapes as little as possible so that a text is not read as markup, whatever precedes and follows it."""
    if linked:
        text = text.replace("\\", "\\\\")
        if not _balanced(text):
            text = text.replace("[", "\\[").replace("]", "\\]")
    if not _SPECIAL.search(text):
        return text

    def escape(match: re.Match[str]) -> str:
        sign, before, after = match[0], text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        if sign == "\\":
            return sign if linked or (after and after not in _ASCII_MARKS) else "\\\\"
        if sign == "]":
            return "]\\" if after and after in "(:" else sign
        if sign == "<":
            return "\\<" if not after or after.isalpha() or after in "/!?" else sign
        if sign == "&":
            return "\\&" if _ENTITY.match(text, match.start()) else sign
        if sign[0] == "`":
            return "\\" + sign
        if before and after and before.isspace() and after.isspace():
            return sign
        if sign[0] == "_" and before.isalnum() and after.isalnum():
            return sign
        return "".join("\\" + character for character in sign)

    return _SPECIAL.sub(escape, text)


def _balanced(text: str, brackets: str = "[]") -> bool:
    """Whether each bracket has its partner."""
    depth = 0
    for character in text if brackets[0] in text or brackets[1] in text else "":
        depth += (character == brackets[0]) - (character == brackets[1])
        if depth < 0:
            break
    return not depth
