"""Twenty pages of many kinds, and the Markdown that they come to (``markdown_pages.txt``, which a person has read).

``python -m cc_pipeline_tests.documents.html.markdown_pages`` writes it again; read what changed.
"""

from __future__ import annotations

import re
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.html.markdown import markdown
from cc_pipeline.documents.html.urls import browser_resolver

EXPECTED = Path(__file__).with_suffix(".txt")


def _tex(source: str, *, block: bool = False) -> str:
    """A formula as KaTeX leaves it in a page: twice."""
    display = ' display="block"' if block else ""
    return (
        f'<span class="katex"><span class="katex-mathml"><math{display}><semantics><mrow><mi>f</mi></mrow>'
        f'<annotation encoding="application/x-tex">{source}</annotation></semantics></math></span>'
        f'<span class="katex-html" aria-hidden="true"><span>{source}</span></span></span>'
    )


def _list(tag: str, *items: str, start: int | None = None) -> str:
    begins = "" if start is None else f' start="{start}"'
    return f"<{tag}{begins}>\n" + "".join(f"  <li>{item}</li>\n" for item in items) + f"</{tag}>"


def _table(*rows: str, caption: str = "") -> str:
    """Cells are parted by ``;``; one that begins with ``!`` heads others."""
    cells = (
        "".join(f"<th>{cell[1:]}</th>" if cell.startswith("!") else f"<td>{cell}</td>" for cell in row.split(";"))
        for row in rows
    )
    head = f"<caption>{caption}</caption>" if caption else ""
    return f"<table>{head}<tbody>{''.join(f'<tr>{row}</tr>' for row in cells)}</tbody></table>"


def _code(language: str, text: str) -> str:
    return f'<pre><code class="hljs language-{language}">{text}</code></pre>'


PAGES: dict[str, str] = {
    "news": "<h1>River level falls</h1><p>The <b>Elbe</b> fell to <em>1.2</em>&nbsp;metres, said"
    ' <a href="/people/k">the office</a>.</p><figure><img src="../img/elbe.jpg" alt="The river at noon">'
    "<figcaption>The river at noon. Photo: office</figcaption></figure><p>More rain is expected.</p>",
    "documentation": "<h2 id=use>Usage</h2><p>Call <code>open()</code>, then <code>read(n | None)</code>:</p>"
    + _code("python", "import pages\n\n\nfor page in pages.open('x'):\n    print(page)  # `url`\n")
    + '<p>See <a href="#use">above</a> or <a href="api.html">the reference</a>.</p>',
    "code on a forge": '<h3>Install</h3><div class="highlight highlight-source-shell"><pre>make <span>setup</span>\n\n'
    "make test</pre></div><p>Press <kbd>Ctrl</kbd>+<kbd>C</kbd> to end.</p>",
    "recipe": "<h1>Bread</h1><h2>You need</h2>"
    + _list("ul", "500&nbsp;g flour", "water" + _list("ul", "300 ml cold", "20 ml warm"), "10 g salt")
    + "<h2>Steps</h2>"
    + _list("ol", "Mix.", "<p>Wait.</p><p>It takes <strong>12 hours</strong>.</p>", "Bake at 240&nbsp;°C.")
    + "<p>Then:</p>"
    + _list("ol", "Cool it.", "Cut it.", start=4),
    "encyclopedia": "<h1>Mercury</h1><table class=infobox><tr><th colspan=2>Mercury</th></tr><tr>"
    "<th>Mass</th><td>3.3 &times; "
    "10<sup>23</sup> kg</td></tr><tr><th>Moons</th><td>none</td></tr></table><p><b>Mercury</b> is the first planet"
    '<sup><a href="#n1">[1]</a></sup>. Its year has 88 days; H<sub>2</sub>O ice was found<sup>[2]</sup>.</p>',
    "forum": "<h1>Which index?</h1><blockquote><p>anna wrote:</p><blockquote><p>The first?</p>"
    "</blockquote><p>No, the second."
    "</p></blockquote><p>I agree with ben: 2 * 3 &lt; 7, and a_b_c is no name.</p><blockquote>Done.</blockquote>",
    "shop": "<h1>Lamp</h1>"
    + _table("!Property;!Value", "Power;5 W", "Sockets;E14 | E27", "Colour;<ul><li>warm</li><li>cold</li></ul>")
    + "<p>Price: $25 instead of <del>$30</del></p>",
    "timetable": '<table><caption>Line 7</caption><thead><tr><th>Stop</th><th colspan="2">Departure'
    "</th></tr></thead><tbody>"
    "<tr><td>Harbour</td><td>8:00</td><td>9:00</td></tr><tr><td>Market</td><td rowspan=2>8:10</td><td>9:10</td></tr>"
    "<tr><td>Mill</td><td>9:20</td></tr></tbody></table>",
    "glossary": "<h2>Words</h2><dl><dt>Crawl</dt><dd>A visit of many pages.</dd><dd>Its result."
    "</dd><dt><code>WARC</code>"
    "</dt><dd>A file of records.</dd></dl>",
    "Japanese": "<h1>図書館</h1><p><ruby>東京<rp>(</rp><rt>とうきょう</rt><rp>)</rp></ruby>の"
    "<strong>図書館</strong>は、<em>「本」</em>を貸します。</p>" + _list("ul", "月曜日は休み", "火曜日は九時から"),
    "Chinese": "<p>他说：<b>“天气很好。”</b>然后走了。<a href=/zh/页>更多</a></p>",
    "Arabic": '<div dir="rtl"><h2>العنوان</h2>' + _list("ol", "الأول", "الثاني") + "<p>نص <b>مهم</b>.</p></div>",
    "formulas of KaTeX": f"<p>For {_tex('a_1 * b^2')} we have {_tex('x &lt; y', block=True)}</p><p>and no more.</p>",
    "formulas of MathJax": '<p>Energy is <span class="MathJax_Preview">E=mc2</span>'
    '<script type="math/tex">E = m c^2</script>,'
    ' and</p><script type="math/tex; mode=display">\\sum_{i=1}^n\n i</script>',
    "changes": "<h2>1.2</h2>"
    + _list("ul", "New: <code>a|b</code>", "Fixed" + _list("ol", "one", "two" + _list("ul", "deep")), "<s>Gone</s>")
    + _list("ul", "<p>Another list.</p>" + _code("", "x = 1\n\ny = 2")),
    "poem": "<h2>Evening</h2><p>The day is gone,<br>the lamp is lit,<br><br>and I go on<br/>a bit."
    "</p><hr><p>- the end</p>",
    "laid out by tables": "<table><tr><td><h2>Left</h2><p>One.</p></td><td><h2>Right</h2>"
    + _table("!k;!v", "a;1")
    + "</td></tr></table>",
    "questions": "<details><summary>Is it free?</summary><p>Yes, <i>always</i>.</p></details>"
    "<details><summary>Why?</summary>"
    "It <b><i>just</i> is</b>: see <a href='https://h.example/a_(b)'>this [page]</a>.</details>",
    "plain text": "<p>1. not a list<br># no heading<br>&gt; no quote<br>---<br>* no item<br>+ none"
    "<br>[x]: http://h.example/</p>"
    "<p>`ticks`, *stars*, __init__, snake_case, ~~tildes~~, &lt;b&gt;, &amp;amp;, C:\\new\\_x, a | b, [a](b)!</p>",
    "hidden and furniture": "<p>Seen <span hidden>not</span><span style='display:none'>nor this"
    "</span>.</p><svg><title>x</title>"
    "</svg><select><option>no</option></select><noscript>no</noscript><p><img src=a.gif><img src='data:x' alt=inline>"
    "<button>Read on</button></p>",
}


def written() -> str:
    """All pages' Markdown, each under its name."""
    resolve = browser_resolver("https://example.org/docs/page.html")
    found = []
    for name, page in PAGES.items():
        text = markdown(LexborHTMLParser(page), lambda href: resolve(href)[0], 10_000).text
        found.append(f"<!-- {name} -->\n\n{text}\n")
    return "\n".join(found)


def expected() -> dict[str, str]:
    """The Markdown of each page, as it was read."""
    parts = re.split(r"(?m)^<!-- (.*) -->\n\n", EXPECTED.read_text("utf-8"))
    return {name: text.rstrip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}


if __name__ == "__main__":
    EXPECTED.write_text(written(), "utf-8")
