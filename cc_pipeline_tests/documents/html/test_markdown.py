"""Markdown is right if a parser of CommonMark reads back what the page had."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from cc_pipeline.documents.html.markdown import Markdown, markdown
from cc_pipeline_tests.documents.pages import read

_READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])

#: What is read: a block is a tuple of its name and what it has; text is a list of characters with their styles and
#: link, white space between is one space without.
Block = tuple[Any, ...]
Char = tuple[str, frozenset[str], str | None]


def _markdown(page: str, most_chars: int = 1_000_000, kept: set[int] | None = None) -> Markdown:
    document = read(page)
    return markdown(document, document.tables, most_chars, kept) if document.tables else Markdown("", False)


# --- a page as a model: what is written as HTML, and what is to be read back


@dataclass(frozen=True)
class _Inline:
    """``tag`` is empty for text."""

    tag: str
    text: str = ""
    inner: tuple[_Inline, ...] = ()

    def html(self) -> str:
        if not self.tag:
            return html.escape(self.text, quote=False)
        if self.tag == "br":
            return "<br>"
        inner = "".join(each.html() for each in self.inner)
        return f'<a href="{self.text}">{inner}</a>' if self.tag == "a" else f"<{self.tag}>{inner}</{self.tag}>"

    def chars(self, styles: frozenset[str] = frozenset(), link: str | None = None) -> list[Char]:
        if not self.tag:
            return [(each, styles, link) for each in self.text]
        if self.tag == "br":
            return [("\n", frozenset(), None)]
        if "code" not in styles:
            styles = frozenset({"code"}) if self.tag == "code" else styles if self.tag == "a" else styles | {self.tag}
        link = _ADDRESSES[self.text] if self.tag == "a" else link
        return [char for each in self.inner for char in each.chars(styles, link)]


_ADDRESSES = {
    "/a": "https://example.org/a",
    "b_c*d?x=1&amp;y=2": "https://example.org/docs/b_c*d?x=1&y=2",
    "//h.example/(x": "https://h.example/%28x",
}
_WORDS = (
    *("word", "Zürich", "中文", "“quoted”", "a_b", "x*y", "*", "**", "_", "__init__", "`", "``", "~", "~~", "1~2"),
    *("[x]", "](", "[", "]", "!", "(y)", "<b>", "<", "&amp;", "&", "#", "##", "1.", "7)", "-", "+", "---", "===", ">"),
    *("|", ":-", "[x]:", "\\", "\\*", "a\\", "$5", "€", ".", "http://h.example/", "{", "```", "- -", "*a*", "_a_"),
)
_TEXT = st.builds(_Inline, st.just(""), st.lists(st.sampled_from((*_WORDS, " ", " ", "\n")), max_size=4).map("".join))


def _styled(inner: st.SearchStrategy[_Inline]) -> st.SearchStrategy[_Inline]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.builds(_Inline, st.sampled_from(("strong", "em", "del", "sup", "sub")), st.just(""), several) | st.builds(
        _Inline, st.just("code"), st.just(""), st.tuples(_TEXT)
    )


_SPANS = st.recursive(_TEXT, _styled, max_leaves=5)
_INLINE = st.lists(
    _SPANS | st.builds(_Inline, st.just("a"), st.sampled_from(sorted(_ADDRESSES)), st.tuples(_SPANS)), max_size=4
)
_PARAGRAPH = st.lists(_INLINE, min_size=1, max_size=3)  # parted by breaks
_CODE = st.lists(st.sampled_from((*_WORDS, " ", "\n", "\n\n", "    ")), min_size=1, max_size=6).map("".join)

_BLOCK = st.recursive(
    st.tuples(st.just("p"), _PARAGRAPH)
    | st.tuples(st.sampled_from(("h1", "h3")), _INLINE)
    | st.tuples(st.just("pre"), st.sampled_from(("", "python", "c++")), _CODE)
    | st.tuples(st.just("table"), st.lists(st.lists(_INLINE, min_size=2, max_size=2), min_size=1, max_size=3)),
    lambda inner: (
        st.tuples(st.just("blockquote"), st.lists(inner, min_size=1, max_size=3))
        | st.tuples(st.just("ul"), st.lists(st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=3))
        | st.tuples(
            st.just("ol"), st.integers(0, 12), st.lists(st.lists(inner, min_size=1, max_size=3), min_size=1, max_size=3)
        )
    ),
    max_leaves=8,
)


def _html(block: Block) -> str:
    name, *_, inner = block
    if name == "p":
        return f"<p>{'<br>'.join(map(_inline_html, inner))}</p>"
    if name == "pre":
        return f'<pre><code class="language-{block[1]}">{html.escape(inner)}</code></pre>'
    if name == "table":
        rows = "".join(f"<tr>{''.join(f'<td>{_inline_html(cell)}</td>' for cell in row)}</tr>" for row in inner)
        return f"<table><caption></caption>{rows}</table>"
    if name == "blockquote":
        return f"<blockquote>{''.join(map(_html, inner))}</blockquote>"
    if name in ("ul", "ol"):
        start = f' start="{block[1]}"' if name == "ol" else ""
        items = "".join(f"<li>{''.join(map(_html, item))}</li>" for item in inner)
        return f"<{name}{start}>{items}</{name}>"
    return f"<{name}>{_inline_html(inner)}</{name}>"


def _inline_html(inner: list[_Inline]) -> str:
    return "".join(each.html() for each in inner)


def _expected(block: Block) -> list[Block]:
    """What is to be read back: nothing where there is no text."""
    name, *_, inner = block
    if name == "p":
        found: list[Block] = []
        lines = [_tidy([char for each in line for char in each.chars()]) for line in inner]
        wanted: list[Char] = []
        empty = 0
        for line in lines:  # a line without text is a second break in a row
            if line and wanted and not empty:
                wanted += [("\n", frozenset(), None), *line]
            elif line:
                if wanted:
                    found.append(("p", wanted))
                wanted = line
            empty = 0 if line else empty + 1
        return [*found, ("p", wanted)] if wanted else found
    if name == "pre":
        text = inner.replace("\r", "\n").strip("\n")
        return [("pre", block[1], text)] if text.strip() else []
    if name == "table":
        rows = [[_tidy([char for each in cell for char in each.chars()]) for cell in row] for row in inner]
        rows = [row for row in rows if any(row)]
        return [("table", rows)] if rows else []
    if name == "blockquote":
        quoted = [each for part in inner for each in _expected(part)]
        return [("blockquote", quoted)] if quoted else []
    if name in ("ul", "ol"):
        items = [[each for part in item for each in _expected(part)] for item in inner]
        first = next((at for at, item in enumerate(items) if item), 0)
        items = [item for item in items if item]
        start = (block[1] + first,) if name == "ol" else ()
        return [(name, *start, items)] if items else []
    line = _tidy([char for each in inner for char in each.chars()])
    return [(name, line)] if line else []


def _tidy(chars: list[Char]) -> list[Char]:
    """White space collapsed and without styles."""
    found: list[Char] = []
    for char in chars:
        if not char[0].isspace():
            found.append(char)
        elif found and found[-1][0] != " ":
            found.append((" ", frozenset(), None))
    return found[:-1] if found and found[-1][0] == " " else found


# --- what the parser reads


def _read(text: str) -> list[Block]:
    tokens = _READER.parse(text)
    return _blocks(tokens, 0, len(tokens))


_OPENS = {"strong_open": "strong", "em_open": "em", "s_open": "del"}


def _blocks(tokens: list[Token], at: int, end: int) -> list[Block]:
    found: list[Block] = []
    while at < end:
        token, stop = tokens[at], _closing(tokens, at)
        if token.type == "fence":
            found.append(("pre", token.info, token.content.removesuffix("\n")))
        elif token.type == "paragraph_open":
            found.append(("p", _chars(tokens[at + 1])))
        elif token.type == "heading_open":
            found.append((token.tag, _chars(tokens[at + 1])))
        elif token.type == "blockquote_open":
            found.append(("blockquote", _blocks(tokens, at + 1, stop)))
        elif token.type == "table_open":
            rows: list[list[list[Char]]] = []
            for each in tokens[at:stop]:
                if each.type == "tr_open":
                    rows.append([])
                elif each.type == "inline":
                    rows[-1].append(_chars(each))
            found.append(("table", rows))
        elif token.type in ("bullet_list_open", "ordered_list_open"):
            items = []
            place = at + 1
            while place < stop:
                ends = _closing(tokens, place)
                items.append(_blocks(tokens, place + 1, ends))
                place = ends + 1
            start = (int(token.attrs.get("start", 1)),) if token.tag == "ol" else ()
            found.append((token.tag, *start, items))
        else:
            found.append((token.type, token.content))
        at = stop + 1
    return found


def _closing(tokens: list[Token], at: int) -> int:
    depth = 0
    while True:
        depth += tokens[at].nesting
        if depth == 0:
            return at
        at += 1


def _chars(token: Token) -> list[Char]:
    found: list[Char] = []
    styles: list[str] = []
    link: str | None = None
    for each in token.children or []:
        if each.type in _OPENS:
            styles.append(_OPENS[each.type])
        elif each.type == "html_inline" and not each.content.startswith("</"):
            styles.append(each.content[1:-1])
        elif each.type == "link_open":
            link = str(each.attrs["href"])
        elif each.type == "link_close":
            link = None
        elif each.type.endswith("_close") or each.type == "html_inline":
            styles.pop()
        elif each.type == "hardbreak":
            found.append(("\n", frozenset(), None))
        else:
            own = {"code"} if each.type == "code_inline" else set(styles)
            found += [(char, frozenset(own), link) for char in each.content]
    lines: list[list[Char]] = [[]]
    for char in found:
        if char[0] == "\n":
            lines.append([])
        else:
            lines[-1].append(char)
    wanted: list[Char] = []
    for line in map(_tidy, lines):
        wanted += [("\n", frozenset(), None), *line] if wanted else line
    return wanted


@settings(max_examples=30, deadline=None)
@given(st.lists(_BLOCK, min_size=1, max_size=3))
def test_a_parser_reads_back_what_the_page_has(blocks: list[Block]) -> None:
    page = f"<body>{''.join(map(_html, blocks))}</body>"
    wanted = [each for block in blocks for each in _expected(block)]
    found = _markdown(page).text
    assert _read(found) == wanted, f"{page}\n---\n{found}"


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("<p>10<sup>6</sup> H<sub>2</sub>O", "10<sup>6</sup> H<sub>2</sub>O"),
        ("<p><ruby>漢<rp>(</rp><rt>kan</rt></ruby>字", "漢字"),
        (
            "<p>so <span style='display: none'><math><mi>x</mi>"
            "<annotation encoding='application/x-tex'>{\\displaystyle x_1*y_2}</annotation></math></span>"
            "<img class='mwe-math-fallback-image-inline' alt='x_1*y_2' src='x.svg'>",
            "so $x_1*y_2$",
        ),
        (
            "<math><semantics><mi>x</mi><annotation-xml encoding=MathML-Content><ci>X</ci></annotation-xml>"
            "<annotation encoding=MathType-MTEF>MathType@MTEF@5</annotation></semantics></math>",
            "x",
        ),
        ("<math><mi>x</mi><annotation encoding=LaTeX>\\beta</annotation></math>", "$\\beta$"),
        ("<h2>a<span class=mw-editsection>[<a href=x>edit</a>]</span></h2>", "## a"),
        ("<p><script type='math/tex; mode=display'>a\n\\le b</script>", "$$a \\le b$$"),
        ("<p>a<p><img src='i.png' alt='A [map]'><p>b<p><img src=j.png><p>c", None),
        ("<div class='highlight-source-c++ highlight'><pre>a\n\n\n  b</pre></div>", "```c++\na\n\n\n  b\n```"),
        ("<pre><div>a</div><div>b</div></pre>", "```\na\nb\n```"),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<dl><dt>T<dd>a<dd>b<dt>U<dd>c</dl>", "**T**\n\n- a\n- b\n\n**U**\n\n- c"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ul><li>a<ul><li>b</ul></ul><ul><li>c</ul>", "- a\n  - b\n\n* c"),
        ("<ul><li>a</li><ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ol start=9><li>a<li>b<ol start=4><li>c</ol></ol>", "9. a\n10. b\n\n    4. c"),
        (
            "<table><caption>C</caption><tr><th rowspan=2>a<th colspan=2>b"
            "<tr><td><p>c<p>d|<td><table><tr><td>e<td>f</table></table>",
            "C\n\n| a | b |  |\n| --- | --- | --- |\n|  | c<br>d\\| | e<br>f |",
        ),
        (  # no column or row of no size, and no cell beyond its group
            "<table><thead><tr><th rowspan=3>a<th colspan=0>b</thead><tr><td rowspan=0>c<td>d<tr><td>e</table>",
            "| a | b |\n| --- | --- |\n| c | d |\n|  | e |",
        ),
        ("<table><tr><td><h2>a</h2><td><ul><li>b</ul></table>", "## a\n\n- b"),  # it only places things
        ("<a href=/x><h3>a</h3><p>b</a> <a href='javascript:x'>c</a> <a href='#d'>d</a>", None),
        ("<p>a<br>b<br><br>c<br>", "a\\\nb\n\nc"),
        ("<p>2 * 3 a_b 1. x C:\\x AT&amp;T [1] a &lt; b", "2 * 3 a_b 1. x C:\\x AT&T [1] a < b"),  # nothing to escape
        ("<p>前<b>“强调”</b>后", "前<strong>“强调”</strong>后"),
    ],
)
def test_what_stays_of_a_page(page: str, wanted: str | None) -> None:
    if wanted is None:
        wanted = {
            "<p>": "a\n\n![A [map]](https://example.org/docs/i.png)\n\nb\n\nc",
            "<a ": "### [a](https://example.org/x)\n\n[b](https://example.org/x) c d",
        }[page[:3]]
    assert _markdown(page).text == wanted


def test_only_what_is_kept_and_the_pictures_within_it() -> None:
    picture = "<img src=i.png alt=i>"
    page = f"<div>m {picture}</div>{picture}<ol><li>a<li>{picture}b<li>c</ol>{picture}<p>d<p>e{picture}"
    document = read(page, "https://h/")
    assert document.tree is not None and document.tables is not None
    kept = {document.tree.css("li")[at].mem_id for at in (1, 2)} | {document.tree.css("p")[0].mem_id}
    found = markdown(document, document.tables, 1_000, kept)
    assert found == Markdown("2. ![i](https://h/i.png)b\n3. c\n\n![i](https://h/i.png)\n\nd", cut=False)


@pytest.mark.parametrize(
    "page",
    [
        "<ul><li>x" * 400,
        "<blockquote>x" * 300 + "<pre>" + "\n" * 20_000 + "x",
        "<table><tr><th>x" + "<tr><td colspan=1000 rowspan=60000>x" * 600,
        "<table><tr><td>" * 200 + "x" * 20_000,
        f"<a href='/{'u' * 2_000}'>x</a>" * 400,
        "<b>*</b><i>`</i>" * 5_000,
        "<p>" + "[-" * 20_000,
        "<pre>" + "`" * 20_000,
        f"<math><annotation encoding='application/x-tex'>{'x ' * 20_000}</annotation></math>",
    ],
    ids=("lists", "code in quotes", "spans", "tables", "links", "styles", "brackets", "ticks", "formulas"),
)
def test_no_page_is_longer_than_the_bound(page: str) -> None:
    whole = _markdown(page)
    assert not whole.cut and whole.text
    for most in (10, 1_000):
        found = _markdown(page, most)
        assert len(found.text) <= most and found.cut


def test_formulas_in_scripts_are_in_the_tree_that_is_looked_at() -> None:
    page = "<title>t</title><p>so <script type='math/tex'>x_1</script> it<script>no()</script> is</p>"
    assert (_markdown(page).text, read(page).body_text) == ("so $x_1$ it is", "so it is")
