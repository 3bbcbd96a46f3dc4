"""RSS 0.9x, 1.0, 1.1 and 2.0, Atom 0.3 and 1.0, as one shape."""

from __future__ import annotations

from cc_pipeline.documents.feed_atom import read_atom
from cc_pipeline.documents.feed_model import Feed
from cc_pipeline.documents.feed_rss import read_rss
from cc_pipeline.documents.feed_xml import local_name, parse_xml
from cc_pipeline.documents.options import Limits


def parse_feed(text: str, limits: Limits, base: str = "") -> Feed | None:
    """Reads a feed from its decoded text; ``None`` where it is none. Malformed feeds give what can be read.

    ``base`` is the feed's URL, which its relative links are relative to.
    """
    root, clean = parse_xml(text)
    if root is None:
        return None
    name = local_name(root)[1]
    if name == "feed":
        feed = read_atom(root, limits, base)
    elif name in ("rss", "rdf", "channel"):
        feed = read_rss(root, limits, base)
    else:
        return None
    if not clean:
        feed.flags.add("feed_malformed")
    return feed
