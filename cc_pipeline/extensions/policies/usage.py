"""What labels of two signals about use mean: ``Content-Signal`` (Cloudflare, 2025) and ``Content-Usage``
(draft-ietf-aipref-attach), whose vocabulary changed from draft to draft."""

from __future__ import annotations

from typing import Final

#: Uses that signals speak of.
USES: Final = ("search", "ai-input", "train")

#: By signal and label: which uses it speaks of.
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
#: By signal and word: ``allow`` or ``disallow``. All other words say nothing.
SAYS: Final = {
    "content-signal": {"yes": "allow", "no": "disallow", "allow": "allow", "disallow": "disallow"},
    "content-usage": {"y": "allow", "n": "disallow"},
}


def preferences(signal: str, value: str) -> list[tuple[str, str]]:
    """The labels of a signal with the word behind each; of one named twice the last counts (RFC 9651). Those of
    Content-Usage are case-sensitive, those of Content-Signal come in lower case."""
    words_by_label: dict[str, str] = {}
    for part in (value.lower() if signal == "content-signal" else value).split(","):
        label, equals, word = (side.strip() for side in part.partition("="))
        if label and equals:
            words_by_label.pop(label, None)
            words_by_label[label] = word.partition(";")[0].strip()
    return list(words_by_label.items())
