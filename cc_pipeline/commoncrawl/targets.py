"""What a person asks for: a domain, a host, a URL, a prefix, a suffix, and the keys each of them means."""

from __future__ import annotations

from dataclasses import dataclass

from cc_pipeline.commoncrawl.keyrange import KeyRange


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to look up. ``slug`` is its partition key, ``kind`` one of domain, host, url, prefix, suffix, rev."""

    kind: str
    value: str
    slug: str
    ranges: tuple[KeyRange, ...]

    def matches(self, url: str, host: str) -> bool:
        """Whether a capture whose key lies in ``ranges`` is really meant (the key has lost ``www`` and case)."""
        raise NotImplementedError
