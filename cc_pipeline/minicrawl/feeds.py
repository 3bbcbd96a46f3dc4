"""RSS 2.0, RSS 1.0 and Atom documents."""

from __future__ import annotations

import html
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import format_datetime
from random import Random

from cc_pipeline.minicrawl.languages import Language

#: Content types the three formats are served with.
MIME_TYPES: dict[str, str] = {
    "rss": "application/rss+xml",
    "rdf": "application/rdf+xml",
    "atom": "application/atom+xml",
}


def feed(rng: Random, kind: str, url: str, language: Language, now: datetime, link: Callable[[int], str]) -> bytes:
    """A feed of 2 to 8 items; ``kind`` is a key of ``MIME_TYPES``, ``now`` (aware) the newest possible date."""
    entries = []
    for number in range(rng.randrange(2, 9)):
        title = html.escape(language.headline(rng))
        text = html.escape(f"<p>{html.escape(language.sentence(rng))}</p>")
        when = now - timedelta(hours=rng.randrange(1, 2000))
        entries.append((title, html.escape(link(number + 5)), text, when))
    heading = html.escape(language.headline(rng))
    build = {"rss": _rss, "rdf": _rdf, "atom": _atom}[kind]
    return build(heading, html.escape(url), language, entries).encode()


Entry = tuple[str, str, str, datetime]


def _rss(heading: str, url: str, language: Language, entries: list[Entry]) -> str:
    items = "".join(
        f'<item><title>{title}</title><link>{link}</link><guid isPermaLink="true">{link}</guid>'
        f"<pubDate>{format_datetime(when)}</pubDate><category>news</category>"
        f"<dc:creator>Alex Sample</dc:creator><description>{text}</description></item>\n"
        for title, link, text, when in entries
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<channel><title>{heading}</title><link>{url}</link><description>{heading}</description>"
        f"<language>{language.html}</language><ttl>60</ttl><generator>minicrawl</generator>\n{items}</channel></rss>\n"
    )


def _rdf(heading: str, url: str, language: Language, entries: list[Entry]) -> str:
    listed = "".join(f'<rdf:li rdf:resource="{link}"/>' for _, link, _, _ in entries)
    items = "".join(
        f'<item rdf:about="{link}"><title>{title}</title><link>{link}</link><description>{text}</description>'
        f"<dc:date>{when.isoformat()}</dc:date></item>\n"
        for title, link, text, when in entries
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
        ' xmlns="http://purl.org/rss/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/">\n'
        f'<channel rdf:about="{url}"><title>{heading}</title><link>{url}</link><description>{heading}</description>'
        f"<dc:language>{language.html}</dc:language><items><rdf:Seq>{listed}</rdf:Seq></items></channel>\n"
        f"{items}</rdf:RDF>\n"
    )


def _atom(heading: str, url: str, language: Language, entries: list[Entry]) -> str:
    items = "".join(
        f'<entry><title type="html">{title}</title><link rel="alternate" type="text/html" href="{link}"/>'
        f"<id>{link}</id><updated>{when.isoformat()}</updated><published>{when.isoformat()}</published>"
        f"<author><name>Alex Sample</name></author><category term='news'/>"
        f'<content type="html">{text}</content></entry>\n'
        for title, link, text, when in entries
    )
    newest = max(when for _, _, _, when in entries).isoformat()
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="{language.html}">'
        f"<title>{heading}</title><id>{url}</id><link rel='self' href='{url}'/><updated>{newest}</updated>\n"
        f"{items}</feed>\n"
    )
