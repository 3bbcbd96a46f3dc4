"""Generates bodies of every kind that parsers meet on the web: HTML in many languages, feeds, images, PDF, text, and
empty bodies."""

from __future__ import annotations

import html
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from random import Random

#: Names of charsets as Common Crawl's index writes them, by Python codec name.
INDEX_CHARSETS: dict[str, str] = {
    "utf-8": "UTF-8",
    "ascii": "US-ASCII",
    "iso-8859-1": "ISO-8859-1",
    "iso-8859-7": "ISO-8859-7",
    "windows-1252": "windows-1252",
    "windows-1251": "windows-1251",
    "koi8-r": "KOI8-R",
    "shift_jis": "Shift_JIS",
    "euc-jp": "EUC-JP",
    "gb18030": "GB18030",
}

#: The content types of the three formats.
MIME_TYPES: dict[str, str] = {
    "rss": "application/rss+xml",
    "rdf": "application/rdf+xml",
    "atom": "application/atom+xml",
}

Entry = tuple[str, str, str, datetime]

#: The ways in which a page declares its charset.
DECLARATIONS: tuple[str, ...] = ("header", "meta", "http-equiv", "both", "bom", "none")

_EXTRAS = (
    '<img src="img/{a}.png" alt="picture {a}" width=100 height="50"><img srcset="/i/{a}@2x.webp 2x" src=/i/{a}.webp>',
    '<iframe src="{far}" width="300"></iframe>',
    '<img src="/map.gif" usemap="#m"><map name="m"><area shape="rect" coords="0,0,9,9" href="/region/{a}"></map>',
    "<table border=1><tr><td>{a}<td><A HREF=relative/{a}.html>Cell</A></table>",
    '<form action="/search"><input name="q" value="{a}"></form><a href="?page={a}">next</a><a href="">self</a>',
    '<video src="/v/{a}.mp4" poster="/v/{a}.jpg"></video><a href=" {far} ">spaced</a><a href="//example.net/x">net</a>',
)


@dataclass(frozen=True, slots=True)
class Language:
    """Parts of sentences. ``code`` is ISO 639-3 as in the index, ``html`` the value of a lang attribute.

    ``charsets`` are Python codec names in which every sentence can be written; ``cld2`` is the detector's name.
    """

    code: str
    html: str
    cld2: str
    charsets: tuple[str, ...]
    openings: tuple[str, ...]
    middles: tuple[str, ...]
    endings: tuple[str, ...]
    stop: str = "."
    space: str = " "

    def sentence(self, rng: Random) -> str:
        parts = (rng.choice(self.openings), rng.choice(self.middles), rng.choice(self.endings))
        return self.space.join(parts) + self.stop

    def paragraph(self, rng: Random, sentences: int) -> str:
        return self.space.join(self.sentence(rng) for _ in range(sentences))

    def headline(self, rng: Random) -> str:
        return self.space.join((rng.choice(self.openings), rng.choice(self.middles)))


LANGUAGES: dict[str, Language] = {
    language.code: language
    for language in (
        Language(
            "eng", "en-GB", "ENGLISH", ("utf-8", "iso-8859-1", "windows-1252", "ascii"),
            ("The harbour master", "Our oldest orchard", "A quiet street market", "The town library",
             "Every second lamp", "The night train", "Her small workshop", "This year's harvest"),
            ("opens its doors again", "was painted bright green", "has lost a wooden wheel", "keeps the old maps dry",
             "waits for the first snow", "sells more apples than bread", "answers letters from abroad"),
            ("before the bells ring at noon", "although nobody had asked for it", "because the river rose last week",
             "while the neighbours look on", "for the third time since spring", "and charges nothing for the visit"),
        ),
        Language(
            "deu", "de", "GERMAN", ("utf-8", "iso-8859-1", "windows-1252"),
            ("Der Hafenmeister", "Die älteste Mühle", "Unser Wochenmarkt", "Das Rathaus am Fluss",
             "Eine größere Werkstatt", "Der Nachtzug", "Die Stadtbücherei"),
            ("öffnet heute wieder seine Türen", "wurde im Frühling grün gestrichen", "verkauft mehr Äpfel als Brot",
             "wartet geduldig auf den ersten Schnee", "beantwortet alle Briefe aus Übersee"),
            ("bevor mittags die Glocken läuten", "obwohl niemand darum gebeten hatte", "weil das Wasser gestiegen ist",
             "während die Nachbarn zuschauen", "und verlangt keinen Eintritt"),
        ),
        Language(
            "fra", "fr-FR", "FRENCH", ("utf-8", "iso-8859-1", "windows-1252"),
            ("Le maître du port", "La bibliothèque de la ville", "Notre marché du dimanche", "Le train de nuit",
             "Un très vieux moulin", "L'atelier du cordonnier"),
            ("rouvre enfin ses portes", "a été repeint en vert", "vend plus de pommes que de pain",
             "attend la première neige", "répond aux lettres de l'étranger"),
            ("avant que les cloches ne sonnent à midi", "bien que personne ne l'ait demandé",
             "parce que la rivière est montée", "pendant que les voisins regardent", "sans rien faire payer"),
        ),
        Language(
            "spa", "es", "SPANISH", ("utf-8", "iso-8859-1"),
            ("El capitán del puerto", "La biblioteca municipal", "Nuestro mercado pequeño", "El tren de la noche",
             "Un taller muy antiguo", "La señora del molino"),
            ("abre de nuevo sus puertas", "fue pintado de verde en otoño", "vende más manzanas que pan",
             "espera la primera nieve", "contesta las cartas del extranjero"),
            ("antes de que suenen las campanas", "aunque nadie lo había pedido", "porque el río subió ayer",
             "mientras los vecinos miran", "y no cobra la entrada"),
        ),
        Language(
            "por", "pt-BR", "PORTUGUESE", ("utf-8", "iso-8859-1"),
            ("O capitão do porto", "A biblioteca da cidade", "O nosso mercado", "O trem da noite",
             "Uma oficina antiga"),
            ("abre as portas outra vez", "foi pintada de verde no verão", "vende mais maçãs do que pão",
             "espera a primeira geada", "responde às cartas do exterior"),
            ("antes que os sinos toquem ao meio-dia", "embora ninguém tenha pedido", "porque o rio subiu ontem",
             "enquanto os vizinhos olham", "e não cobra nada pela visita"),
        ),
        Language(
            "rus", "ru", "RUSSIAN", ("windows-1251", "utf-8", "koi8-r"),
            ("Начальник порта", "Городская библиотека", "Наш старый рынок", "Ночной поезд", "Маленькая мастерская"),
            ("снова открывает двери", "продаёт больше яблок, чем хлеба", "ждёт первого снега",
             "отвечает на письма из-за границы", "хранит старые карты сухими"),
            ("прежде чем в полдень зазвонят колокола", "хотя никто об этом не просил", "потому что вода поднялась",
             "пока соседи смотрят", "и не берёт платы за вход"),
        ),
        Language(
            "jpn", "ja", "Japanese", ("shift_jis", "utf-8", "euc-jp"),
            ("港の管理人は", "町の図書館は", "日曜日の市場は", "夜の列車は", "古い工房は"),
            ("もう一度扉を開き", "春に緑色に塗られ", "パンよりも多くのりんごを売り", "初雪を待ちながら"),
            ("正午の鐘を聞いています", "近所の人々を招いています", "川の水位を見守っています",
             "手紙に返事を書いています"),
            stop="。", space="",
        ),
        Language(
            "zho", "zh-CN", "Chinese", ("gb18030", "utf-8"),
            ("港口的负责人", "城里的图书馆", "我们的老市场", "夜间的火车", "那座旧磨坊"),
            ("再次打开了大门", "春天被刷成绿色", "卖出的苹果比面包还多", "正在等待第一场雪"),
            ("因为昨天河水上涨了", "虽然没有人提出要求", "而且参观不收任何费用", "邻居们都在旁边看着"),
            stop="。", space="",
        ),
        Language(
            "ell", "el", "GREEK", ("iso-8859-7", "utf-8"),
            ("Ο λιμενάρχης", "Η δημοτική βιβλιοθήκη", "Η παλιά αγορά", "Το νυχτερινό τρένο"),
            ("ανοίγει ξανά τις πόρτες", "βάφτηκε πράσινη την άνοιξη", "πουλάει περισσότερα μήλα από ψωμί"),
            ("πριν χτυπήσουν οι καμπάνες", "αν και κανείς δεν το ζήτησε", "επειδή το ποτάμι ανέβηκε χθες"),
        ),
    )
}  # fmt: skip


def feed(rng: Random, kind: str, url: str, language: Language, now: datetime, link: Callable[[int], str]) -> bytes:
    """Generates a feed of 2 to 8 items; ``kind`` is a key of ``MIME_TYPES``, ``now`` (aware) the last possible date."""
    entries = []
    for number in range(rng.randrange(2, 9)):
        title = html.escape(language.headline(rng))
        text = html.escape(f"<p>{html.escape(language.sentence(rng))}</p>")
        published_at = now - timedelta(hours=rng.randrange(1, 2000))
        entries.append((title, html.escape(link(number + 5)), text, published_at))
    heading = html.escape(language.headline(rng))
    build = {"rss": _rss, "rdf": _rdf, "atom": _atom}[kind]
    return build(heading, html.escape(url), language, entries).encode()


def _rss(heading: str, url: str, language: Language, entries: list[Entry]) -> str:
    items = "".join(
        f'<item><title>{title}</title><link>{link}</link><guid isPermaLink="true">{link}</guid>'
        f"<pubDate>{format_datetime(published_at)}</pubDate><category>news</category>"
        f"<dc:creator>Alex Sample</dc:creator><description>{text}</description></item>\n"
        for title, link, text, published_at in entries
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<channel><title>{heading}</title><link>{url}</link><description>{heading}</description>"
        f"<language>{language.html}</language><ttl>60</ttl><generator>minicrawl</generator>\n{items}</channel></rss>\n"
    )


def _rdf(heading: str, url: str, language: Language, entries: list[Entry]) -> str:
    item_list = "".join(f'<rdf:li rdf:resource="{link}"/>' for _, link, _, _ in entries)
    items = "".join(
        f'<item rdf:about="{link}"><title>{title}</title><link>{link}</link><description>{text}</description>'
        f"<dc:date>{published_at.isoformat()}</dc:date></item>\n"
        for title, link, text, published_at in entries
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
        ' xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">\n'
        f'<channel rdf:about="{url}"><title>{heading}</title><link>{url}</link><description>{heading}</description>'
        f"<dc:language>{language.html}</dc:language><items><rdf:Seq>{item_list}</rdf:Seq></items></channel>\n"
        f"{items}</rdf:RDF>\n"
    )


def _atom(heading: str, url: str, language: Language, entries: list[Entry]) -> str:
    items = "".join(
        f'<entry><title type="html">{title}</title><link rel="alternate" type="text/html" href="{link}"/>'
        f"<id>{link}</id><updated>{published_at.isoformat()}</updated><published>{published_at.isoformat()}</published>"
        f"<author><name>Alex Sample</name></author><category term='news'/>"
        f'<content type="html">{text}</content></entry>\n'
        for title, link, text, published_at in entries
    )
    newest = max(published_at for _, _, _, published_at in entries).isoformat()
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="{language.html}">'
        f"<title>{heading}</title><id>{url}</id><link rel='self' href='{url}'/><updated>{newest}</updated>\n"
        f"{items}</feed>\n"
    )


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A page's bytes and the values that a parser should read. ``charset`` is a Python codec name."""

    body: bytes
    title: str
    charset: str
    declared_in: str
    language: Language


def html_page(
    rng: Random,
    url: str,
    language: Language,
    link: Callable[[int], str],
    *,
    paragraphs: int | None = None,
    scale: int = 1,
) -> HtmlPage:
    """Generates a page in one of the language's charsets. ``link`` returns the URL of another page for any number.

    The page has ``paragraphs`` paragraphs, or a random number of them times ``scale``.
    """
    charset = language.charsets[0] if rng.random() < 0.7 else rng.choice(language.charsets)
    declared_in = rng.choice(DECLARATIONS if charset == "utf-8" else (*DECLARATIONS[:4], "none"))
    title = f"{language.headline(rng)} & {rng.randrange(1000)}"
    if rng.random() < 0.04:
        return _frameset(title, charset, declared_in, language, link)
    head = _head(rng, url, title, charset, declared_in, language, link)
    count = rng.choice((2, 3, 4, 6, 9, 14)) * scale if paragraphs is None else paragraphs
    body = _body(rng, title, count, language, link)
    untidy = rng.random() < 0.15
    opening = "<HTML>" if untidy else f'<!DOCTYPE html>\n<html lang="{language.html}">'
    closing = "" if untidy else "</body>\n</html>\n"
    text = f"{opening}\n<head>\n{head}\n</head>\n<body class=page>\n{body}\n{closing}"
    return HtmlPage(_encoded(text, charset, declared_in), title, charset, declared_in, language)


def _encoded(text: str, charset: str, declared_in: str) -> bytes:
    mark = b"\xef\xbb\xbf" if declared_in == "bom" else b""
    return mark + text.encode(charset, errors="xmlcharrefreplace")


def _head(
    rng: Random, url: str, title: str, charset: str, declared_in: str, language: Language, link: Callable[[int], str]
) -> str:
    escaped = html.escape(title)
    description = html.escape(language.sentence(rng), quote=True)
    lines = []
    if declared_in in {"meta", "both"}:
        lines.append(f'<meta charset="{charset}">')
    if declared_in == "http-equiv":
        lines.append(f'<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset={charset}">')
    lines.append(f"<title>{escaped}</title>")
    if rng.random() < 0.2:
        lines.append(f'<base href="{_origin(url)}/base/">')
    lines += [
        f'<meta name="description" content="{description}">',
        f'<meta name=keywords content="mini, crawl, {language.code}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<link rel="canonical" href="{html.escape(url, quote=True)}">',
        '<link rel="stylesheet" type="text/css" href="/static/site.css?v=3" media="all">',
        '<link rel="shortcut icon" href="/favicon.ico">',
        '<link rel="alternate" type="application/rss+xml" title="News" href="/feed/">',
        '<script src="/static/app.js" async></script>',
    ]
    if rng.random() < 0.5:
        lines += [
            f'<meta property="og:title" content="{escaped}">',
            '<meta property="og:type" content="article">',
            f'<meta property="og:image" content="{link(rng.randrange(50))}/cover.jpg">',
            f'<meta property="article:published_time" content="20{rng.randrange(10, 24)}-03-0{rng.randrange(1, 10)}">',
            '<meta name="twitter:card" content="summary">',
        ]
    if rng.random() < 0.35:
        document = {
            "@context": "https://schema.org",
            "@type": rng.choice(("NewsArticle", "Product", "WebPage")),
            "headline": title,
            "author": {"@type": "Person", "name": "Alex Sample"},
            "url": url,
        }
        text = json.dumps(document).replace("<", "\\u003c")
        lines.append(f'<script type="application/ld+json">{text}</script>')
    if rng.random() < 0.1:
        lines.append(f'<meta name="robots" content="{rng.choice(("noindex, follow", "nofollow", "noarchive"))}">')
    return "\n".join(lines)


def _body(rng: Random, title: str, count: int, language: Language, link: Callable[[int], str]) -> str:
    parts = [
        f'<nav><ul><li><a href="/">Start</a></li><li><a href="#top">Top</a></li>'
        f'<li><a href="{html.escape(link(1), quote=True)}" rel="nofollow">1</a></li>'
        f'<li><a href="mailto:mail@example.com">Mail</a></li>'
        f'<li><a href="javascript:void(0)">Menu</a></li></ul></nav>',
        f"<h1>{html.escape(title)}</h1>",
        "<!-- generated page: <a href='/not-a-link'>in a comment</a> -->",
    ]
    for number in range(count):
        text = html.escape(language.paragraph(rng, rng.randrange(2, 6)))
        target = html.escape(link(rng.randrange(1000)), quote=True)
        anchor = html.escape(language.headline(rng))
        close = "</p>" if rng.random() < 0.9 else ""
        reference = f"{rng.getrandbits(256):064x}"  # the real web is less compressible than our sentences
        parts.append(f'<p data-ref={reference}>{text} <a href="{target}" title="{number}">{anchor}</a>.{close}')
    parts.append(
        rng.choice(_EXTRAS).format(a=rng.randrange(100), far=html.escape(link(rng.randrange(1000)), quote=True))
    )
    parts.append("<script>document.write(\"<a href='/written'>written</a>\");</script>")
    parts.append(f"<footer>&copy; {2000 + rng.randrange(25)} &ndash; <a href='../impressum.html'>Imprint</a></footer>")
    return "\n".join(parts)


def _frameset(title: str, charset: str, declared_in: str, language: Language, link: Callable[[int], str]) -> HtmlPage:
    first, second = (html.escape(link(number), quote=True) for number in (2, 3))
    text = (
        f"<html><head><title>{html.escape(title)}</title></head>\n<frameset cols='20%,80%'>\n"
        f'<frame src="{first}" name="menu">\n<frame src="{second}" name="main">\n'
        "<noframes><body><p>No frames here.</p></body></noframes>\n</frameset></html>\n"
    )
    return HtmlPage(_encoded(text, charset, declared_in), title, charset, declared_in, language)


def _origin(url: str) -> str:
    scheme, _, address = url.partition("://")
    return f"{scheme}://{address.split('/', 1)[0]}"


def other_body(rng: Random, kind: str, language: Language) -> tuple[str | None, str, bytes]:
    """Generates declared content type (``None``: no header), detected type and body.

    Kinds: ``empty``, ``pdf``, ``image``, ``text``, ``json``, ``untyped`` (HTML served without a type). Raises
    ``ValueError`` for another kind: a mistake of the caller.
    """
    match kind:
        case "empty":
            return "text/html", "application/x-empty", b""
        case "pdf":
            return rng.choice(("application/pdf", "application/octet-stream")), "application/pdf", _pdf(rng)
        case "image":
            return rng.choice(("image/png", "text/html")), "image/png", _png(rng)
        case "text":
            return "text/plain; charset=utf-8", "text/plain", language.paragraph(rng, 8).encode()
        case "json":
            return "application/json", "application/json", json.dumps({"n": rng.randrange(9999), "ok": True}).encode()
        case "untyped":
            page = f"<html><title>untyped {rng.randrange(99)}</title><body>{language.paragraph(rng, 3)}</body></html>"
            return None, "text/html", page.encode()
        case _:
            raise ValueError(f"no body of kind {kind}")


def _pdf(rng: Random) -> bytes:
    stream = rng.randbytes(rng.randrange(200, 3000))
    return (
        b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Count 0/Kids[]>>endobj\n3 0 obj<</Length "
        + str(len(stream)).encode()
        + b">>stream\n"
        + stream
        + b"\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
    )


def _png(rng: Random) -> bytes:
    side = 4 + rng.randrange(12)
    rows = b"".join(b"\0" + rng.randbytes(3 * side) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
