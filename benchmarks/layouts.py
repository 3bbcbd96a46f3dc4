"""Generated pages whose content is known: kinds in layouts by chance, with lists, tables, definitions, ruby and code in
what is to be kept, and menus, boxes and forms around it. In the last three the article is outweighed by prose that is
none of it, and that no name betrays. The same number gives the same page."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from benchmarks.gold_pages import STRUCTURE, GoldPage, spaced

_WORDS = (
    "river bridge winter letter garden signal market engine copper window harbour station method number water paper "
    "the of and to in that with from which before after between results several people found years small large early "
    "water pressure council report river minister school system valley because however during under although"
).split()
_HAN = "河橋冬信園号市機銅窓港駅法数水紙年人大小早"


@dataclass(slots=True)
class Layout:
    """A page, the words of its content in order, and the elements in it: (tag, text)."""

    kind: str
    markup: str
    text: str
    elements: list[tuple[str, str]]


@dataclass(slots=True)
class _Page:
    """What is written so far; what ``say`` gives is content, what ``phrase`` gives is whatever its user makes of it."""

    chance: random.Random
    said: list[str] = field(default_factory=list)
    elements: list[tuple[str, str]] = field(default_factory=list)

    def word(self) -> str:
        return f"{self.chance.choice(_WORDS)}{self.chance.randrange(10_000) if self.chance.random() < 0.15 else ''}"

    def phrase(self, least: int, most: int) -> str:
        return " ".join(self.word() for _ in range(self.chance.randint(least, most))).capitalize()

    def sentence(self, least: int = 7, most: int = 22) -> str:
        words = self.phrase(least, most)
        if self.chance.random() < 0.5:
            words = words.replace(" ", ", ", 1)
        return words + self.chance.choice("....?!")

    def prose(self, least: int = 1, most: int = 5) -> str:
        return " ".join(self.sentence() for _ in range(self.chance.randint(least, most)))

    def say(self, tag: str, text: str, inner: str | None = None, attributes: str = "") -> str:
        """An element of content."""
        self.said.append(text)
        if tag not in ("p", "div", "h1"):
            self.elements.append((tag, text))
        return f"<{tag}{attributes}>{text if inner is None else inner}</{tag}>"

    def one(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def some(self, least: int, most: int) -> range:
        return range(self.chance.randint(least, most))


def _paragraph(page: _Page) -> str:
    text = page.prose()
    words = text.split(" ")
    at = page.chance.randrange(len(words))
    inner = " ".join([*words[:at], f"<a href='/{at}'>{words[at]}</a>", *words[at + 1 :]])
    return page.say(page.one("p", "p", "p", "div"), text, inner if page.chance.random() < 0.4 else None)


def _list(page: _Page) -> str:
    tag, long = page.one("ul", "ul", "ol"), page.chance.random() < 0.5
    items = (page.say("li", page.sentence() if long else page.phrase(1, 6)) for _ in page.some(2, 9))
    return f"<{tag}>{''.join(items)}</{tag}>"


def _table(page: _Page) -> str:
    columns, rows = page.chance.randint(2, 5), []
    for row in page.some(2, 8):
        tag = "th" if row == 0 and page.chance.random() < 0.7 else "td"
        cells = (page.say(tag, page.phrase(1, 4)) for _ in range(columns))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table{page.one('', ' class=infobox', ' class=data')}>{''.join(rows)}</table>"


def _definitions(page: _Page) -> str:
    pairs = (page.say("dt", page.phrase(1, 3)) + page.say("dd", page.sentence(3, 14)) for _ in page.some(2, 7))
    return f"<dl>{''.join(pairs)}</dl>"


def _code(page: _Page) -> str:
    lines = (f"{page.word()} = {page.word()}({page.chance.randrange(99)})" for _ in page.some(2, 8))
    code = "\n".join(lines)
    return page.say("pre", code, f"<code>{code}</code>" if page.chance.random() < 0.5 else None)


def _quote(page: _Page) -> str:
    text = page.prose(1, 2)
    return page.say("blockquote", text, f"<p>{text}</p>" if page.chance.random() < 0.6 else None)


def _ruby(page: _Page) -> str:
    base = "".join(page.chance.choices(_HAN, k=page.chance.randint(4, 9)))
    before, after = page.phrase(4, 12), page.sentence(4, 12)
    page.elements.append(("ruby", base))
    ruby = "".join(f"<ruby>{each}<rt>kana</rt></ruby>" for each in base)
    return page.say("p", f"{before} {base} {after}", f"{before} {ruby} {after}")


def _heading(page: _Page, level: str = "") -> str:
    tag = level or page.one("h2", "h2", "h3", "h4")
    text = page.phrase(2, 7)
    edit = "<span class='mw-editsection'>[<a href='?edit'>edit</a>]</span>" if page.chance.random() < 0.1 else ""
    return page.say(tag, text, text + edit)


_Part = Callable[[_Page], str]


def _mixed(page: _Page, parts: tuple[_Part, ...], least: int = 4, most: int = 12) -> str:
    out = [_paragraph(page)]
    for _ in page.some(least, most):
        part = page.chance.choice(parts)
        if part is not _paragraph and page.chance.random() < 0.5:
            out.append(_heading(page))
        out.append(part(page))
        if page.chance.random() < 0.5:
            out.append(_paragraph(page))
        if page.chance.random() < 0.12:
            out.append(_within(page))
    return "".join(out)


def _within(page: _Page) -> str:
    """Furniture between paragraphs."""
    phrase = page.phrase(3, 9)
    return page.one(
        f"<div class='related'><strong>Read also</strong> <a href='/r'>{phrase}</a></div>",
        f"<aside class='newsletter'><h3>{phrase}</h3><p>{page.sentence()}</p><input><button>Subscribe</button></aside>",
        "<div class='ad'>Advertisement</div>",
        "<ul class='share'><li><a href='//t'>Tweet</a></li><li><a href='//f'>Share</a></li></ul>",
        f"<figure><img src='/i.jpg'><figcaption class='credit'>Photo: {phrase}</figcaption></figure>",
    )


def _article(page: _Page) -> str:
    return _mixed(page, (_paragraph, _paragraph, _list, _table, _quote, _definitions, _ruby))


def _docs(page: _Page) -> str:
    return _mixed(page, (_code, _code, _list, _table, _definitions, _paragraph))


def _recipe(page: _Page) -> str:
    amounts = (page.say("li", f"{page.chance.randint(1, 500)} g {page.phrase(1, 3)}") for _ in page.some(4, 12))
    first = (
        f"{_paragraph(page)}{_heading(page, 'h2')}<ul class='{page.one('ingredients', 'list')}'>{''.join(amounts)}</ul>"
    )
    steps = (page.say("li", page.sentence()) for _ in page.some(3, 9))
    return f"{first}{_heading(page, 'h2')}<ol>{''.join(steps)}</ol>{_paragraph(page)}"


def _linked(page: _Page) -> str:
    """A list of links, or of entries that begin with one, as articles of a wiki have them."""
    tag, whole = page.one("ul", "ul", "ol"), page.chance.random() < 0.4
    items = []
    for number in page.some(3, 14):
        link, more = page.phrase(1, 5), "" if whole else f", {page.phrase(1, 12)}"
        items.append(page.say("li", link + more, f"<a href='/wiki/{number}'>{link}</a>{more}"))
    return f"<{tag}>{''.join(items)}</{tag}>"


def _references(page: _Page) -> str:
    name, items = page.one("references", "reflist", "notes", "footnotes"), []
    for number in page.some(3, 20):
        author, work, place = page.phrase(2, 3), page.phrase(3, 9), page.phrase(1, 3)
        inner = f"<a href='#r{number}'>^</a> {author}. <a href='//o/{number}'>{work}</a>. <i>{place}</i>."
        items.append(page.say("li", f"^ {author}. {work}. {place}.", inner))
    return f"{_heading(page, 'h2')}<ol class='{name}'>{''.join(items)}</ol>"


def _wiki(page: _Page) -> str:
    """Begins with a box of facts, may have a table of contents, and ends in links and references."""
    parts = (_paragraph, _paragraph, _paragraph, _list, _linked, _table, _definitions, _quote, _ruby)
    box = _table(page) if page.chance.random() < 0.6 else ""
    contents = f"<div id='toc' class='toc'><h2>Contents</h2><ul>{_links(page, 4, 12)}</ul></div>"
    body = _mixed(page, parts, 5, 14)
    links = f"{_heading(page, 'h2')}{_linked(page)}" if page.chance.random() < 0.6 else ""
    end = _references(page) if page.chance.random() < 0.7 else ""
    group = f"<table class='navbox'><tr><th>{page.phrase(1, 3)}</th><td>{_links(page, 5, 20)}</td></tr></table>"
    top = contents if page.chance.random() < 0.5 else ""
    return f"{top}{box}{body}{links}{end}{group if page.chance.random() < 0.4 else ''}"


def _forum(page: _Page) -> str:
    outer, inner = page.chance.choice((("div", "p"), ("li", "div"), ("article", "p"), ("div", "div")))
    rows = []
    for number in page.some(3, 14):
        name = f"<a href='/u/{number}'>{page.word()}</a> {page.one('joined 2011', 'posted')}"
        user = f"<{inner} class='user'>{name}</{inner}>"
        body = "".join(page.say(inner if inner == "p" else "div", page.prose()) for _ in page.some(1, 2))
        quoted = _quote(page) if page.chance.random() < 0.2 else ""
        rows.append(
            f"<{outer} class='post'>{user}<div class='body'>{body}{quoted}</div><a href='#'>Reply</a></{outer}>"
        )
    text = "".join(rows)
    return f"<ol>{text}</ol>" if outer == "li" else f"<div class='thread'>{text}</div>"


def _shop(page: _Page) -> str:
    outer = page.one("div", "li", "section")
    rows = []
    for number in page.some(8, 30):
        name = page.phrase(3, 9)
        page.said.append(name)
        rows.append(
            f"<{outer} class='product'><a href='/p/{number}'><img src='/{number}.jpg'></a><h3>{name}</h3>"
            f"<span class='price'>{number}.99 EUR</span><button>Buy</button></{outer}>"
        )
        page.elements.append(("h3", name))
        page.said.append(f"{number}.99 EUR")
    text = "".join(rows)
    return f"<ul>{text}</ul>" if outer == "li" else f"<div class='grid'>{text}</div>"


def _product(page: _Page) -> str:
    features = "".join(page.say("li", page.phrase(3, 10)) for _ in page.some(3, 8))
    return f"{_paragraph(page)}<ul>{features}</ul>{_heading(page, 'h3')}{_table(page)}{_paragraph(page)}"


def _government(page: _Page) -> str:
    return _mixed(page, (_list, _table, _definitions, _paragraph, _paragraph), 3, 8)


def _brief(page: _Page) -> str:
    if page.chance.random() < 0.5:
        return "".join(_paragraph(page) for _ in page.some(1, 4))
    return _mixed(page, (_paragraph, _paragraph, _paragraph, _list, _quote), 2, 6)


def _post(page: _Page) -> str:
    """A post of somebody else's that an article quotes, with its author and a link to it."""
    text, author, day = page.prose(1, 2), f"\u2014 {page.word()} (@{page.word()})", f"{page.word()} 3, 2019"
    outer = page.one("div class='embed'", "div class='twitter'", "figure", "div")
    inner = f"<p>{text}</p>{author} <a href='//t/1'>{day}</a>"
    name = page.one("twitter-tweet", "instagram-media", "quote", "")
    quote = page.say("blockquote", f"{text} {author} {day}", inner, f" class='{name}'")
    return f"<{outer}>{quote}</{outer.split()[0]}>"


def _cited(page: _Page) -> str:
    """A quotation with who said it, within it."""
    text, who = page.prose(1, 3), page.phrase(2, 4)
    tag = page.one("footer", "cite", "p")
    return page.say("blockquote", f"{text} {who}", f"<p>{text}</p><{tag}>{who}</{tag}>")


def _quoting(page: _Page) -> str:
    begin = _cited(page) if page.chance.random() < 0.3 else ""
    return begin + _mixed(page, (_paragraph, _paragraph, _paragraph, _post, _cited, _quote), 4, 10)


def _manual(page: _Page) -> str:
    """Parts of the first rank, headings behind headings, notes in boxes."""
    out = []
    for _ in page.some(2, 5):
        out.append(_heading(page, page.one("h1", "h2", "h2")))
        if page.chance.random() < 0.4:
            out.append(_heading(page, "h3"))
        out.append(_mixed(page, (_code, _list, _definitions, _paragraph, _paragraph, _table), 1, 4))
        if page.chance.random() < 0.4:
            name = page.one("note", "warning", "admonition", "tip")
            out.append(f"<div class='{name}'><strong>Note</strong>{page.say('p', page.prose(1, 2))}</div>")
    return "".join(out)


def _thread(page: _Page) -> str:
    """Answers that begin with what they answer, and headings within them."""
    rows = []
    for number in page.some(3, 10):
        who = f"<div class='{page.one('author', 'user', 'c3')}'><a href='/u/{number}'>{page.word()}</a></div>"
        quoted = ""
        if page.chance.random() < 0.5:
            said, text = f"{page.word()} wrote:", page.prose(1, 2)
            quoted = page.say("blockquote", f"{said} {text}", f"<cite>{said}</cite> {text}")
        head = _heading(page, "h3") if page.chance.random() < 0.2 else ""
        body = "".join(_paragraph(page) for _ in page.some(1, 3))
        rows.append(f"<div class='{page.one('post', 'answer', 'message')}'>{who}<div>{quoted}{head}{body}</div></div>")
    return "".join(rows)


def _item(page: _Page) -> str:
    """One thing to buy: what it is, its numbers, what it is for."""
    parts = [f"{_paragraph(page)}<div class='price'>19.99 EUR <button>Buy</button></div>"]
    for part in page.chance.sample((_list, _table, _definitions, _cited, _paragraph, _paragraph), 4):
        parts.append(_heading(page, page.one("h2", "h3", "h4")) + part(page))
    return "".join(parts)


def _further(page: _Page) -> str:
    """Other articles."""
    outer, inner, top = (
        page.one("div", "div", "li", "article", "section"),
        page.one("p", "p", "div"),
        page.one("h2", "h3"),
    )
    headed, long, share = page.chance.random() < 0.7, page.chance.randint(1, 3), page.chance.random() < 0.4
    rows = []
    for number in page.some(3, 8):
        head = f"<{top}><a href='/p{number}'>{page.phrase(3, 9)}</a></{top}>" if headed else ""
        text = "".join(f"<{inner}>{page.prose(1, 4)}</{inner}>" for _ in range(long))
        links = "<div><a href='#'>Whatsapp</a> <a href='#'>Facebook</a></div>" if share else "<a href='/m'>More</a>"
        rows.append(f"<{outer} class='c7'>{head}{text}{links}</{outer}>")
    group = "ul" if outer == "li" else "div"
    return f"<{top}>{page.phrase(2, 4)}</{top}><{group}>{''.join(rows)}</{group}>"


def _ticker(page: _Page) -> str:
    """Headlines and how they begin."""
    rows = (f"<li><a href='/n{n}'>{page.phrase(6, 12)}</a> {page.sentence(15, 30)}</li>" for n in page.some(5, 12))
    return f"<div>{page.phrase(1, 3)}</div><ul>{''.join(rows)}</ul>"


def _discussion(page: _Page) -> str:
    """Comments that are not named so."""
    outer = page.one("div", "li")
    rows = (
        f"<{outer} class='c9'><b>{page.word()}</b> <span>3 May 2019 10:15</span><p>{page.prose(1, 4)}</p>"
        f"<a href='#'>Reply</a></{outer}>"
        for _ in page.some(3, 12)
    )
    return f"<h3>{page.one('7 responses', 'Comments', 'What readers say')}</h3><div>{''.join(rows)}</div>"


#: What stands before and behind the article of a kind.
AROUND: dict[str, tuple[_Part | None, _Part | None]] = {
    "followed": (None, _further),
    "headed": (_ticker, None),
    "discussed": (None, _discussion),
}

KINDS: dict[str, _Part] = {
    "article": _article,
    "docs": _docs,
    "recipe": _recipe,
    "wiki": _wiki,
    "forum": _forum,
    "shop": _shop,
    "product": _product,
    "government": _government,
    "quoting": _quoting,
    "manual": _manual,
    "thread": _thread,
    "item": _item,
    **dict.fromkeys(AROUND, _brief),
}


def _links(page: _Page, least: int, most: int) -> str:
    return "".join(f"<li><a href='/{n}'>{page.phrase(1, 4)}</a></li>" for n in page.some(least, most))


def _teasers(page: _Page) -> str:
    return "".join(
        f"<{page.one('div', 'li', 'article')} class='{page.one('teaser', 'card', 'item')}'>"
        f"<h3><a href='/a{n}'>{page.phrase(4, 9)}</a></h3><p>{page.sentence()}</p></div>"
        for n in page.some(2, 6)
    )


def _comments(page: _Page) -> str:
    rows = "".join(f"<li><b>{page.word()}</b><p>{page.prose(1, 3)}</p></li>" for _ in page.some(1, 6))
    return f"<div id='{page.one('comments', 'disqus', 'responses')}'><h3>Comments</h3><ol>{rows}</ol></div>"


def _boxes(page: _Page) -> str:
    made: tuple[Callable[[], str], ...] = (
        partial(_teasers, page),
        lambda: f"<h4>{page.phrase(1, 3)}</h4><ul>{_links(page, 3, 9)}</ul>",
        lambda: f"<p>{page.prose(1, 2)}</p>",
        lambda: f"<table><tr><td><a href='/x'>{page.phrase(1, 3)}</a></td><td>{page.word()}</td></tr></table>",
        lambda: f"<dl><dt>{page.word()}</dt><dd><a href='/y'>{page.phrase(1, 3)}</a></dd></dl>",
    )
    return "".join(
        f"<div class='{page.one('widget', 'box', 'block')}'>{page.chance.choice(made)()}</div>" for _ in page.some(1, 4)
    )


def layout(kind: str, number: int) -> Layout:
    """A page of a kind."""
    page = _Page(random.Random(f"{kind} {number}"))
    title = page.phrase(3, 8)
    body = KINDS[kind](page)
    main, end = page.chance.choice(
        (("<main>", "</main>"), ("<div id='content'>", "</div>"), ("<div class='page'>", "</div>"),
         ("<article>", "</article>"), ("<div class='c12'><div>", "</div></div>"), ("<td width='70%'>", "</td>"))
    )  # fmt: skip
    top, low = page.one("nav", "header", "div class=menu", "div"), page.one("footer", "div class=footer", "div")
    menu = f"<{top}><ul>{_links(page, 4, 16)}</ul></{top.split()[0]}>"
    aside = page.one("aside", "div class='sidebar'", "div class='right'", "div")
    side = f"<{aside}>{_boxes(page)}</{aside.split()[0]}>" if page.chance.random() < 0.7 else ""
    below = "".join(made(page) for made, share in ((_comments, 0.25), (_teasers, 0.3)) if page.chance.random() < share)
    byline = page.one("", f"<div class='meta'>By {page.phrase(1, 2)} | 3 May 2019</div>")
    foot = f"<{low}><p>© 2019 {page.sentence()}</p><ul>{_links(page, 2, 8)}</ul></{low.split()[0]}>"
    banner = f"<div class='cookie-banner'><p>We use cookies. {page.sentence()}</p></div>"
    cookies = banner if page.chance.random() < 0.2 else ""
    before, after = ("" if made is None else made(page) for made in AROUND.get(kind, (None, None)))
    middle = f"{main}<h1>{title}</h1>{byline}{body}{end}"
    if before or after:
        article = f"<h1>{title}</h1>{byline}<div class='{page.one('a1', 'text', 'entry')}'>{body}</div>"
        middle = page.one(
            f"{main}{before}{article}{after}{end}",
            f"{before}<div>{article}</div><div>{after}</div>",
            f"<div>{before}</div>{main}{article}{end}{after}",
        )
    if main.startswith("<td"):
        middle = f"<table><tr><td><ul>{_links(page, 3, 9)}</ul></td>{middle}<td>{side}</td></tr></table>"
        side = ""
    inside = side + middle if page.chance.random() < 0.3 else middle + side
    markup = (
        f"<html><head><title>{title}</title></head><body>{cookies}{menu}"
        f"<div class='{page.one('wrap', 'container', 'row', 'has-sidebar')}'>{inside}{below}</div>{foot}</body></html>"
    )
    return Layout(kind, markup, "\n".join(page.said), page.elements)


def layouts(each: int) -> list[Layout]:
    """So many pages of each kind."""
    return [layout(kind, number) for kind in KINDS for number in range(each)]


def layout_pages(each: int) -> list[GoldPage]:
    """Generated pages, so many of each kind."""
    return [
        GoldPage(
            page.kind,
            f"{page.kind} {at}",
            page.markup,
            page.text,
            tuple((STRUCTURE[tag], spaced(text)) for tag, text in page.elements),
            generated=True,
        )
        for at, page in enumerate(layouts(each))
    ]
