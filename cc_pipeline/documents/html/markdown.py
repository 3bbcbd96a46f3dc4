"""A page's kept text as Markdown: CommonMark with GitHub's tables, from the page's own tree.

The tree is walked once, without recursion. The form of a text depends on its ancestors: headings, lists, quotes,
tables, code. Any other layout is dropped. Images stay if the texts on both sides do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeVar

from selectolax.lexbor import LexborNode

from cc_pipeline.documents.html.spans import Piece, Style, fence, image_markdown, written
from cc_pipeline.documents.html.tables import Tables
from cc_pipeline.documents.html.tags import BLOCK, LEAF, NUMBER, ROLES
from cc_pipeline.documents.html.tree import HtmlDocument

_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_STYLES: Final[dict[str, Callable[[Style], Style]]] = {
    **dict.fromkeys(("b", "strong"), lambda style: style._replace(strong=True)),
    **dict.fromkeys(("i", "em", "cite", "dfn", "var"), lambda style: style._replace(emphasis=True)),
    **dict.fromkeys(("s", "strike", "del"), lambda style: style._replace(struck=True)),
    "sup": lambda style: style._replace(sup=True),
    "sub": lambda style: style._replace(sub=True),
}
_CODE_BLOCKS: Final = frozenset(("pre", "listing", "xmp", "plaintext"))
_CODE: Final = frozenset(("code", "kbd", "samp", "tt"))
#: The output of programs that draw formulas.
_DRAWN: Final = (
    ".MathJax, .MathJax_Preview, .MathJax_Display, .MathJax_SVG, .MathJax_CHTML,"
    " .mwe-math-fallback-image-inline, .mwe-math-fallback-image-display"
)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language-|lang-|highlight-source-|brush:\s*)([\w+#.-]{1,40})", re.ASCII)
#: The encodings of annotations with a formula in TeX.
_TEX: Final = frozenset(("application/x-tex", "application/x-latex", "text/x-tex", "text/x-latex", "tex", "latex"))
_OF_WIKIPEDIA = re.compile(r"\{\\displaystyle (.*)\}", re.DOTALL)
#: A table with one of these elements and no head is layout.
_RICH: Final = frozenset("blockquote dl form h1 h2 h3 h4 h5 h6 ol pre table ul".split())
_UNNUMBERED_LISTS: Final = frozenset(("ul", "menu", "dir", "dl"))
#: Lists and quotes nested deeper than this are written as if they were this deep.
_DEEPEST: Final = 12
_MAX_COLUMNS: Final = 200
#: Groups of rows, which no cell exceeds, and the maximum number of rows of a cell.
_GROUPS: Final = frozenset(("thead", "tbody", "tfoot"))
_MAX_ROWS: Final = 65_534
_LONGEST_ADDRESS: Final = 2_048

_T = TypeVar("_T")


class Markdown(NamedTuple):
    """The Markdown of a page. ``cut``: the text was longer than the limit."""

    text: str
    cut: bool


@dataclass(slots=True)
class _Table:
    """A table. ``head``: it has header cells or a caption; ``rich``: cells with more than a line of text; ``columns``
    of the widest row, ``cells`` of the current row."""

    head: bool = False
    rich: bool = False
    layout: bool = False
    columns: int = 0
    cells: int = 0

    @property
    def laid_out(self) -> bool:
        """Whether the table only lays out parts of the page."""
        return self.layout or (not self.head and (self.rich or self.columns < 2))


@dataclass(slots=True)
class _Run:
    """The inline content between two boundaries of blocks. ``has_text``: it has text; ``heading`` is a level;
    ``language`` is that of code, ``None`` for other text."""

    pieces: list[Piece] = field(default_factory=list)
    has_text: bool = False
    is_kept: bool = False
    heading: int = 0
    language: str | None = None

    @property
    def code(self) -> str:
        return "".join(piece.text for piece in self.pieces).replace("\r", "\n").strip("\n")


class _Begin(NamedTuple):
    kind: Literal["list", "item", "quote", "table", "group", "row", "cell"]
    number: int | None = None
    table: _Table | None = None
    span: tuple[int, int] = (1, 1)


#: ``None`` is the end of the event that began last.
_Event = _Begin | _Run | None


def markdown(
    document: HtmlDocument, tables: Tables, max_chars: int, block_ids: Container[int] | None = None
) -> Markdown:
    """Returns the Markdown of the blocks with a ``mem_id`` in ``block_ids`` (only text directly in them, not in nested
    blocks), or of all if that is ``None``. What is read of the tree are the elements of the ``tables``. ``max_chars``
    limits the Markdown and the work."""
    if document.tree is None or document.tree.body is None:
        return Markdown("", False)
    walk = _Walk(document, tables, max_chars, block_ids)
    walk.read_tree(document.tree.body)
    _keep_images(walk.events)
    writer = _Writer(max_chars)
    _write(walk.events, writer)
    return Markdown("\n".join(writer.lines), walk.cut or writer.cut)


class _Entered(NamedTuple):
    """An open element, with the state before it began. ``begins`` counts its events."""

    node: LexborNode
    tag: str
    begins: int
    style: Style
    heading: int
    is_selected: bool


class _Walk:
    """Turns a tree into events."""

    def __init__(
        self, document: HtmlDocument, tables: Tables, max_chars: int, block_ids: Container[int] | None
    ) -> None:
        self.events: list[_Event] = []
        self.cut = False
        self._resolve, self._room, self._block_ids = document.resolve, max_chars, block_ids
        self._shown, self._shadows = set(tables.address.tolist()), set(tables.shadows.tolist())
        assert document.tree is not None
        self._shown -= {node.mem_id for node in document.tree.css(_DRAWN)}
        self._run = _Run()
        self._style, self._heading, self._is_selected = Style(), 0, True
        self._code = 0
        self._tables: list[_Table] = []
        self._number = 0

    def read_tree(self, root: LexborNode) -> None:
        """Reads all nodes below ``root``, up to the limit on characters."""
        entered: list[_Entered] = []
        self._is_selected = self._owns(root)
        node = root.child
        while not self.cut:
            if node is None:
                if not entered:
                    break
                node = self._leave(entered.pop()).next
            elif node.is_text_node:
                self._add_text(node.text_content or "")
                node = node.next
            elif node.is_element_node and (element := self._enter(node)) is not None:
                entered.append(element)
                node = node.template_fragments()[0].first_child if node.mem_id in self._shadows else node.child
            else:
                node = node.next
        self._code = 0
        self._flush()
        self.events += [None] * sum(open_element.begins for open_element in entered)

    def _owns(self, node: LexborNode) -> bool:
        return self._block_ids is None or node.mem_id in self._block_ids

    def _add_text(self, text: str) -> None:
        run = self._run
        run.has_text = run.has_text or not (text.isspace() or not text)
        if self._is_selected:
            run.is_kept = True
            self._add(Piece(text, self._style))

    def _add(self, piece: Piece) -> None:
        self._room -= len(piece.text) + 1
        if self._room < 0:
            self.cut = True
            piece = Piece(piece.text[: self._room] if piece.kind == "text" else "", piece.style)
        if piece.text or piece.kind == "break":
            self._run.pieces.append(piece)

    def _flush(self) -> None:
        """Ends the run of text. In code, blocks only end lines."""
        run = self._run
        if self._code:
            if run.pieces and not run.pieces[-1].text.endswith("\n"):
                run.pieces.append(Piece("\n", self._style))
        elif run.has_text or run.pieces:
            if run.has_text and not run.is_kept:
                run.pieces.clear()
            run.heading = self._heading
            self.events.append(run)
            self._run = _Run()

    def _enter(self, node: LexborNode) -> _Entered | None:
        """Enters an element; returns ``None`` if nothing below it is read."""
        tag = node.tag or ""
        if tag == "br":
            self.break_line()
            return None
        if node.mem_id not in self._shown and node.mem_id not in self._shadows:
            if tag != "img" and (formula := node.css_first("math")) is not None:
                self.formula(formula)  # the accessible copy of a drawn formula
            return None
        roles = ROLES[NUMBER.get(tag, 0)]
        if tag in _READERS:
            _READERS[tag](self, node)
        if tag == "math" or roles & LEAF:
            return None
        element = _Entered(node, tag, 0, self._style, self._heading, self._is_selected)
        if roles & BLOCK:
            self._flush()
            count = len(self.events)
            self._is_selected = self._owns(node)
            if self._code:
                self._code += tag in _CODE_BLOCKS
            else:
                self._block(node, tag)
            return element._replace(begins=len(self.events) - count)
        style = self._style
        if style.code or self._code:
            pass
        elif tag in _CODE:
            self._number += 1
            self._style = Style(link=style.link, code=self._number)
        elif tag in _STYLES:
            self._style = _STYLES[tag](style)
        elif tag == "a":
            self._number += 1
            url = self._address(node.attributes.get("href"))
            self._style = style._replace(link=(url, self._number) if url else None)
            self._room -= len(url or "")
        elif tag == "q":
            self._add_text('"')
        return element

    def _leave(self, entered: _Entered) -> LexborNode:
        tag = entered.tag
        if ROLES[NUMBER.get(tag, 0)] & BLOCK:
            if tag in _CODE_BLOCKS:
                self._code -= 1
            self._flush()
            if tag == "table" and not self._code:
                self._tables.pop()
        elif tag == "q" and not self._style.code and not self._code:
            self._add_text('"')
        self.events += [None] * entered.begins
        self._style, self._heading, self._is_selected = entered.style, entered.heading, entered.is_selected
        return entered.node

    def _block(self, node: LexborNode, tag: str) -> None:
        begin = self.events.append
        if tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag in _UNNUMBERED_LISTS:
            begin(_Begin("list"))
        elif tag == "ol":
            begin(_Begin("list", _number(node, "start", 1)))
        elif tag in ("li", "dd"):
            begin(_Begin("item", _number(node, "value", None) if tag == "li" else None))
        elif tag == "dt":
            self._style = self._style._replace(strong=True)
        elif tag == "blockquote":
            begin(_Begin("quote"))
        elif tag in _CODE_BLOCKS:
            self._code = 1
            self._run.language = _language(node)
        elif tag == "table":
            layout = node.attributes.get("role") in ("presentation", "none")
            self._tables.append(_Table(layout=layout))
            begin(_Begin("table", table=self._tables[-1]))
        if self._tables:
            self._read_table_part(node, tag)

    def _read_table_part(self, node: LexborNode, tag: str) -> None:
        table = self._tables[-1]
        if tag in _GROUPS:
            self.events.append(_Begin("group", table=table))
        elif tag == "tr":
            table.cells = 0
            self.events.append(_Begin("row", table=table))
        elif tag in ("td", "th"):
            span = _number(node, "colspan", 1) or 1, _number(node, "rowspan", 1) or _MAX_ROWS
            table.cells += span[0]
            table.columns = max(table.columns, table.cells)
            self.events.append(_Begin("cell", table=table, span=span))
        if tag in ("th", "thead", "caption"):
            table.head = True
        elif tag == "table":
            for outer_table in self._tables[-2:-1]:
                outer_table.rich = True
        elif tag in _RICH:
            table.rich = True

    def _address(self, value: str | None) -> str | None:
        if not value or value.startswith("#") or len(value) > _LONGEST_ADDRESS:
            return None
        url = self._resolve(value)[0]
        return url if url and url.startswith(("http:", "https:", "mailto:")) else None

    def break_line(self) -> None:
        """Breaks the line; a second break in a row ends the paragraph."""
        pieces = self._run.pieces
        if self._code:
            self._add_text("\n")
            return
        while pieces and pieces[-1].kind == "text" and pieces[-1].text.isspace():
            pieces.pop()
        if pieces and pieces[-1].kind == "break":
            self._flush()
        else:
            self._add(Piece("", self._style, "break"))

    def rule(self, node: LexborNode) -> None:
        """Ends the block: a rule separates blocks, and has no text."""
        self._flush()

    def image(self, node: LexborNode) -> None:
        """Adds an image that has an alternative text; others are dropped."""
        attributes = node.attributes
        alt = " ".join((attributes.get("alt") or "").split())
        if not alt or self._code or self._style.code:
            return
        if "latex" in (attributes.get("class") or "").split():
            self._tex(alt, block=False)
            return
        url = self._address(attributes.get("src")) or self._address(attributes.get("data-src"))
        if url:
            self._add(Piece(image_markdown(alt, url), self._style, "raw"))

    def script(self, node: LexborNode) -> None:
        """Adds a formula in a script for MathJax."""
        kind = (node.attributes.get("type") or "").replace(" ", "").lower()
        if kind.startswith("math/tex"):
            self._tex(node.text() or "", block="mode=display" in kind)

    def formula(self, node: LexborNode) -> None:
        """Adds the TeX source of MathML; its text if it has no source."""
        notes = node.css("annotation, annotation-xml")
        source = next((note for note in notes if (note.attributes.get("encoding") or "").lower() in _TEX), None)
        tex = (source.text() if source else "") or node.attributes.get("alttext") or ""
        if tex.strip():
            self._tex(tex, block=node.attributes.get("display") == "block")
            return
        note_texts = {text.mem_id for note in notes for text in note.traverse(include_text=True)}
        texts = (
            text_node
            for text_node in node.traverse(include_text=True)
            if text_node.is_text_node and text_node.mem_id not in note_texts
        )
        self._add_text(" ".join(text_node.text_content or "" for text_node in texts))

    def _tex(self, tex: str, *, block: bool) -> None:
        tex = " ".join(tex.split())
        if match := _OF_WIKIPEDIA.fullmatch(tex):
            tex = match[1].strip()
        if self._code or self._style.code:
            self._add_text(tex)
        elif tex:
            self._run.has_text = True
            if self._is_selected:
                self._run.is_kept = True
                sign = "$$" if block else "$"
                self._add(Piece(f"{sign}{tex}{sign}", self._style, "raw"))


#: Elements of which more is read than the text in them.
_READERS: Final[dict[str, Callable[[_Walk, LexborNode], None]]] = {
    "hr": _Walk.rule,
    "img": _Walk.image,
    "script": _Walk.script,
    "math": _Walk.formula,
}


def _number(node: LexborNode, name: str, default: _T) -> int | _T:
    """Returns an attribute's whole number, if Markdown can write it."""
    value = (node.attributes.get(name) or "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else default


def _language(pre: LexborNode) -> str:
    """Returns the language of a code block, by the class names of syntax highlighters."""
    parent = pre.parent
    ancestors = [parent, parent.parent if parent is not None else None]
    names = [node.attributes.get("class") or "" for node in (pre, pre.css_first("code")) if node is not None]
    for node in ancestors:
        if node is not None and node.is_element_node and "highlight" in (node.attributes.get("class") or ""):
            names.append(node.attributes["class"] or "")
    language = next((language[1] for name in names if (language := _LANGUAGE.search(name))), "")
    return "" if language in ("none", "plaintext") else language


def _keep_images(events: Sequence[_Event]) -> None:
    """Keeps the runs without text between two kept runs."""
    follows_kept_text = False
    waiting: list[_Run] = []
    for run in events:
        if isinstance(run, _Run) and not run.has_text:
            waiting.append(run)
        elif isinstance(run, _Run):
            for waiting_run in waiting:
                waiting_run.is_kept = waiting_run.is_kept or (follows_kept_text and run.is_kept)
            waiting.clear()
            follows_kept_text = run.is_kept


@dataclass(slots=True)
class _Frame:
    """A page, a list, an item, or a quote. ``first`` begins its first line, ``indent`` the others. ``last`` is the kind
    of the last block in it: a text, an item, a list by its sign. ``number`` is the number of a list's next item."""

    kind: str
    first: str = ""
    indent: str = ""
    last: str = ""
    sign: str = ""
    number: int | None = None


class _Writer:
    """Writes lines, each after the prefixes of the frames around it."""

    def __init__(self, most_chars: int) -> None:
        self.lines: list[str] = []
        self.cut = False
        self._room = most_chars
        self._frames = [_Frame("page")]
        self._framed: list[bool] = []

    def begin(self, event: _Begin) -> None:
        frame, outer = None, self._frames[-1]
        if len(self._frames) > _DEEPEST:
            pass
        elif event.kind == "quote":
            frame = _Frame("quote", "> ", "> ")
        elif event.kind == "list":
            frame = _Frame("list", number=event.number)
            if outer.kind == "list" and outer.last == "item":  # outside any item: it belongs to the previous one
                frame.first = frame.indent = " " * len(_marker(outer))
            last_sign = outer.last
            frame.sign = (
                ("*" if last_sign == "-" else "-") if event.number is None else (")" if last_sign == "." else ".")
            )
        elif event.kind == "item" and outer.kind == "list":
            if outer.number is not None and event.number is not None:
                outer.number = event.number
            frame = _Frame("item", _marker(outer))
            frame.indent = " " * len(frame.first)
            if outer.number is not None:
                outer.number = min(outer.number + 1, 999_999_999)
        self._framed.append(frame is not None)
        if frame is not None:
            self._frames.append(frame)

    def end(self) -> None:
        if self._framed.pop():
            self._frames.pop()

    def write(self, lines: list[str], ends: str | None = None) -> None:
        """Writes a block. ``ends`` is its last line even if other lines are cut."""
        self.cut = self.cut or 2 * len(ends or "") > self._room
        if self.cut:
            return
        frames = self._frames
        new = next((index for index, open_frame in enumerate(frames) if not open_frame.last), len(frames))
        if self.lines and not self._tight(new):
            self._line("".join(open_frame.indent for open_frame in frames[:new]).rstrip())
        first = "".join(open_frame.indent if open_frame.last else open_frame.first for open_frame in frames)
        indent = "".join(open_frame.indent for open_frame in frames)
        self._room -= len(first) + len(ends or "") + 1
        for index, line in enumerate(lines):
            self._line(((indent if index else first) + line) if line else (indent if index else first).rstrip())
            if self.cut:
                break
        if ends is not None:
            self.lines.append(indent + ends)
        frames[-1].last = "text"
        for frame, inner in pairwise(frames):
            frame.last = "item" if frame.kind == "list" else inner.sign or "quote"

    def _line(self, line: str) -> None:
        if len(line) + 1 > self._room:
            self.cut = True
            line = line[: max(self._room - 1, 0)]
        self._room -= len(line) + 1
        self.lines.append(line)

    def _tight(self, new: int) -> bool:
        """Whether a block follows without an empty line. The frames from ``new`` on are new."""
        frames = self._frames
        if new == len(frames):
            return False
        frame, outer = frames[new], frames[new - 1]
        if frame.kind == "item":
            return outer.last == "item"
        # only a list that begins at one can interrupt a text
        is_interrupting_list = (
            frame.kind == "list" and len(frames) > new + 1 and frames[new + 1].first[:2] in ("- ", "* ", "1.", "1)")
        )
        return is_interrupting_list and (outer.last == "item" or (outer.kind == "item" and outer.last == "text"))


def _marker(frame: _Frame) -> str:
    return f"{frame.sign} " if frame.number is None else f"{frame.number}{frame.sign} "


def _write(events: Sequence[_Event], writer: _Writer) -> None:
    position = 0
    while position < len(events) and not writer.cut:
        event = events[position]
        if event is None:
            writer.end()
        elif isinstance(event, _Run):
            _write_run(event, writer)
        elif event.table is not None and event.kind == "table" and not event.table.laid_out:
            position = _write_table(events, position, writer)
        else:
            writer.begin(event)
        position += 1


def _write_run(run: _Run, writer: _Writer) -> None:
    if not run.is_kept:
        return
    if run.language is not None:
        code = run.code
        if code and not code.isspace():
            sign = fence(code)
            writer.write([sign + run.language, *code.split("\n")], sign)
        return
    lines = written(run.pieces, line=run.heading > 0)
    if lines != [""]:
        writer.write(["#" * run.heading + " " + lines[0]] if run.heading else lines)


def _write_table(events: Sequence[_Event], position: int, writer: _Writer) -> int:
    """Writes a table with all its content; nested tables become texts of its cells. Returns the position of its end."""
    table = events[position].table  # type: ignore[union-attr]  # the beginning of one
    rows: list[list[str]] = []
    spanned_rows: dict[int, int] = {}  # by column, the further rows that a cell from above spans
    reached: set[int] = set()
    cells: list[bool] = []  # for each open event, whether it is a cell of this table
    cell = 0
    while True:
        event = events[position]
        if event is None:
            cells.pop()
            if not cells:
                break
        elif isinstance(event, _Run):
            if not any(cells):
                _write_run(event, writer)
            elif event.is_kept:
                pieces = event.pieces if event.language is None else [Piece(event.code, Style(code=1))]
                text = written(pieces, cell=True)[0]
                previous_text = rows[-1][cell]
                rows[-1][cell] = f"{previous_text}<br>{text}" if previous_text and text else previous_text or text
        else:
            cells.append(event.kind == "cell" and event.table is table)
            if event.kind == "group" and event.table is table:
                spanned_rows = {}
            elif event.kind == "row" and event.table is table:
                rows.append([])
                reached = {column for column, rows_left in spanned_rows.items() if rows_left}
                spanned_rows = {column: rows_left - 1 for column, rows_left in spanned_rows.items() if rows_left > 1}
            elif cells[-1]:
                row, (wide, high) = rows[-1], event.span
                while len(row) in reached:
                    row.append("")
                if not row or len(row) < _MAX_COLUMNS:
                    cell = len(row)
                    row += [""] * min(wide, max(_MAX_COLUMNS - cell, 1))
                    if high > 1:
                        spanned_rows |= dict.fromkeys(range(cell, len(row)), high - 1)
        position += 1
    rows = [row for row in rows if any(row)]
    if rows:
        head = rows[0] + [""] * (max(map(len, rows)) - len(rows[0]))
        writer.write([_row(head), _row(["---"] * len(head)), *map(_row, rows[1:])])
    return position


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
