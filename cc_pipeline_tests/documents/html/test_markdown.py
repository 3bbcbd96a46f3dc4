"""Markdown is right if a parser of CommonMark reads back what the page had."""

from __future__ import annotations

import html

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

from cc_pipeline.documents.html.markdown import Markdown, markdown
from cc_pipeline_tests.documents.pages import read

_READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _markdown(page: str, most_chars: int = 1_000_000, kept: set[int] | None = None) -> Markdown:
    document = read(page)
    return markdown(document, document.tables, most_chars, kept) if document.tables else Markdown("", False)


# --- pages

_ADDRESSES = {
    "/a": "https://example.org/a",
    "b_c*d?x=1&y=2": "https://example.org/docs/b_c*d?x=1&y=2",
    "//h.example/(x": "https://h.example/%28x",
}
_WORDS = (
    *(
        "word",
        "Z\u00fcrich",
        "\u4e2d\u6587",
        "\u201cquoted\u201d",
        "a_b",
        "x*y",
        "*",
        "**",
        "_",
        "__init__",
        "`",
        "``",
        "~",
        "~~",
    ),
    *("[x]", "](", "[", "]", "!", "(y)", "<b>", "<", "&amp;", "&", "#", "##", "1.", "7)", "-", "+", "---", "===", ">"),
    *("|", ":-", "[x]:", "\\", "\\*", "a\\", "$5", "\u20ac", ".", "http://h.example/", "{", "```", "- -", "*a*", "_a_"),
    *("1~2", " ", " ", "\n"),
)


def _several(one: st.SearchStrategy[str], form: str, between: str = "", most: int = 3) -> st.SearchStrategy[str]:
    """One or several of ``one`` in an element."""
    return st.lists(one, min_size=1, max_size=most).map(lambda inner: form.format(between.join(inner)))


_TEXT = st.lists(st.sampled_from(_WORDS), max_size=4).map(lambda words: html.escape("".join(words), quote=False))
_SPAN = st.recursive(
    _TEXT,
    lambda inner: (
        st.sampled_from(("strong", "em", "del", "sup", "sub")).flatmap(
            lambda tag: _several(inner, f"<{tag}>{{}}</{tag}>")
        )
        | _TEXT.map("<code>{}</code>".format)
    ),
    max_leaves=5,
)
_LINK = st.builds('<a href="{}">{}</a>'.format, st.sampled_from(sorted(map(html.escape, _ADDRESSES))), _SPAN)
_INLINE = _several(_SPAN | _LINK, "{}", most=4)
_CODE = _several(st.sampled_from((*_WORDS, "\n\n", "    ")).map(html.escape), "{}", most=6)
_ROW = _several(st.builds("<td>{}</td><td>{}</td>".format, _INLINE, _INLINE), "<tr>{}</tr>", most=1)
_BLOCK = st.recursive(
    _several(_INLINE, "<p>{}</p>", "<br>")
    | st.builds("<{0}>{1}</{0}>".format, st.sampled_from(("h1", "h3")), _INLINE)
    | st.builds('<pre><code class="language-{}">{}</code></pre>'.format, st.sampled_from(("", "python", "c++")), _CODE)
    | _several(_ROW, "<table>{}</table>"),
    lambda inner: (
        _several(inner, "<blockquote>{}</blockquote>")
        | _several(_several(inner, "<li>{}</li>"), "<ul>{}</ul>")
        | _several(_several(inner, "<li>{}</li>"), "<ol>{}</ol>")
    ),
    max_leaves=8,
)

# --- what is read in them

_INLINE_TAGS = {"strong": "strong", "em": "em", "del": "del", "s": "del", "sup": "sup", "sub": "sub", "code": "code"}
_BLOCK_TAGS = {tag: tag for tag in ("ul", "ol", "li", "blockquote", "td", "table", "h1", "h3", "pre")} | {"th": "td"}
#: A character with its styles and address, the blocks around it, and what stands between it and the one before: the
#: blocks that begin, or else a new paragraph, white space, or nothing.
Char = tuple[str, frozenset[str], tuple[str, ...], str]


class _Page:
    """Reads a page character by character, whether it was written by hand or out of Markdown."""

    def __init__(self, markup: str) -> None:
        self.chars: list[Char] = []
        self._begun: list[str] = []
        self._between = "\n\n"
        body = LexborHTMLParser(markup).body
        if body is not None:
            self._read_all(body, frozenset(), ())

    def _read_all(self, node: LexborNode, styles: frozenset[str], blocks: tuple[str, ...]) -> None:
        for child in node.iter(include_text=True):
            self._read(child, styles, blocks)

    def _read(self, node: LexborNode, styles: frozenset[str], blocks: tuple[str, ...]) -> None:
        tag = node.tag or ""
        if tag == "-text":
            self._say(node.text_content or "", styles, blocks)
        elif tag == "br":
            self._between = "\n\n" if "\n" in self._between else "\n"
        elif tag == "pre":
            self._begun.append(
                f"pre {(node.css_first('code').attributes.get('class') or '').removeprefix('language-')}"
            )
            self._say_code(node.text().strip("\n"), blocks)
            self._end(self._begun[-1:])
        elif tag in _BLOCK_TAGS or tag == "p":
            own = [_BLOCK_TAGS[tag]] if tag != "p" else []
            self._begun += own
            self._between = "\n\n"
            self._read_all(node, styles, (*blocks, *own))
            self._end(own)
        elif tag == "a":
            address = node.attributes.get("href") or ""
            self._read_all(node, styles | {_ADDRESSES.get(address, address)}, blocks)
        else:
            self._read_all(node, styles | {_INLINE_TAGS[tag]} if tag in _INLINE_TAGS else styles, blocks)

    def _say(self, text: str, styles: frozenset[str], blocks: tuple[str, ...]) -> None:
        if "code" in styles:  # no style within it is one
            styles = frozenset(each for each in styles if each == "code" or ":" in each)
        for char in text:
            if char.isspace():
                self._between = self._between or " "
            else:
                self.chars.append((char, styles, blocks, " ".join(self._begun) or self._between))
                self._begun, self._between = [], ""

    def _say_code(self, text: str, blocks: tuple[str, ...]) -> None:
        if text.strip():
            self.chars.append((text, frozenset(), blocks, " ".join(self._begun)))
            self._begun = []

    def _end(self, own: list[str]) -> None:
        if own and self._begun[-1:] == own:  # it had no text
            self._begun.pop()
        self._between = "\n\n"


@settings(max_examples=30, deadline=None)
@given(st.lists(_BLOCK, min_size=1, max_size=3).map("".join))
def test_a_parser_reads_back_what_the_page_has(page: str) -> None:
    written = _markdown(f"<body>{page}</body>").text
    assert _Page(_READER.render(written)).chars == _Page(page).chars, f"{page}\n---\n{written}"


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
