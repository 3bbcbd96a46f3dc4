"""The meaning of two usage signals' labels: ``Content-Signal`` (Cloudflare, 2025) and ``Content-Usage``
(draft-ietf-aipref-attach), whose vocabulary differs between drafts.
"""

from __future__ import annotations

from typing import Final

#: Uses that signals are about.
USES: Final = ("search", "ai-input", "train")

#: The uses that a label is about, by signal and label.
LABELS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "content-signal": {"search": ("search",), "ai-input": ("ai-input",), "ai-train": ("train",)},
    "content-usage": {
        **dict.fromkeys(("all", "bots"), USES),
        "search": ("search",),
        "ai": ("ai-input", "train"),
        **dict.fromkeys(("ai-use", "ai-output", "inference"), ("ai-input",)),
        **dict.fromkeys(("train-ai", "train-genai", "genai", "tdm"), ("train",)),
    },
}
#: The verdict of a word (``allow`` or ``disallow``), by signal and word. All other words have no effect.
VERDICTS: Final = {
    "content-signal": {"yes": "allow", "no": "disallow", "allow": "allow", "disallow": "disallow"},
    "content-usage": {"y": "allow", "n": "disallow"},
}


def parse_signal(signal: str, value: str) -> list[tuple[str, str]]:
    """The labels of a signal with their words; the last of equal labels counts (RFC 9651). Labels of Content-Usage are
    case-sensitive, those of Content-Signal become lower case.
    """
    words_by_label: dict[str, str] = {}
    for part in (value.lower() if signal == "content-signal" else value).split(","):
        label, equals, word = (side.strip() for side in part.partition("="))
        if label and equals:
            words_by_label.pop(label, None)
            words_by_label[label] = word.partition(";")[0].strip()
    return list(words_by_label.items())
