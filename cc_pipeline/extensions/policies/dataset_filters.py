"""The filters of published data sets, by their published names: Gopher's two (Rae and others 2021, table A1 and section
A.1.1), C4's (Raffel and others 2020) with the numbers of two programs, and FineWeb's own (Penedo and others 2024).
Each filter follows datatrove, whose results are in the tests.

The rules were published for English. A rule is not applied (``unapplied_rules``) to a language without words between
spaces, without end marks, or with other words than English, if the rule depends on these.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from typing import Final, NamedTuple

from cc_pipeline.documents.signals import plain

#: ISO 639-3 codes of languages written without spaces; of these, and Korean, a line holds more than one of letters;
#: of those without a mark at a sentence's end.
UNSPACED: Final = frozenset(("zho", "jpn", "tha", "lao", "mya", "khm", "dzo", "bod"))
_DENSE_LANGUAGES: Final = UNSPACED | {"kor"}
NO_MARKS: Final = frozenset(("tha", "lao", "bod", "dzo"))

_STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
_PUNCTUATION = frozenset(
    "!\"#%&'()*+,-./:;<=>?@[\\]^_`{|}~\u00b4\u00ab\u00bb\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u2026\u2022"
    "\u2501\u25ba\u2236\u3001\u3002\u3008\u3009\u300a\u300b\u300c\u300d\u3010\u3011\uff01\uff05\uff08\uff09\uff0c\uff0e"
    "\uff11\uff1a\uff1b\uff1f\uff5e"
) | {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}
#: The list of datatrove also has the sentence marks of historic scripts.
_END_MARKS = (
    *(
        ".",
        "!",
        "?",
        "\u3002",
        "\uff01",
        "\uff1f",
        "\uff0e",
        "\uff61",
        "\u061f",
        "\u06d4",
        "\u0964",
        "\u0965",
        "\u0589",
    ),
    *("\u104a", "\u104b", "\u1362", "\u1367", "\u17d4", "\u17d5", "\u2047", "\u2048", "\u2049", "\u203c"),
)
_C4_END_MARKS = (".", "?", "!", '"', "'")
_ALL_END_MARKS = (*_C4_END_MARKS, *_END_MARKS, "\u201d", "\u300d", "\u300f")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_LONGEST_WORD = 1_000
#: Sizes of runs of words, and Gopher's thresholds.
TOP_RUNS: Final = ((2, 0.2), (3, 0.18), (4, 0.16))
REPEATED_RUNS: Final = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1))

#: Words of a part that has more than letters: English clitics, abbreviations, numbers with what stands in and behind
#: them, runs of letters with the marks that stay inside, a run of points or dashes, a mark alone.
_WORD_PARTS = re.compile(
    r"https?://\S*[^\s.,;:!?)\]\"'\u201d]|[^\W\d_]+(?=n['\u2019]t\b)|n['\u2019]t\b|['\u2019](?:s|re|ve|ll|d|m)\b"
    r"|(?:[^\W\d_]\.){2,}|\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|vs|v|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\."
    r"|\.{2,}|-{2,}|//+|\d+(?:[.,:/\u2013]\d+)*\w*"
    r"|\w(?:\w|[.'\u2019](?!(?:s|re|ve|ll|d|m|t)\b)(?=[^\W\d_]{2}))*"
    r"|[^\s\w!-/:-@\[-`{-~\u00ab\u00bb\u2010-\u2027]+|[^\s]"
)
_SENTENCE_END = re.compile(
    r"(?:[!?]|(?<![.\u2026])(?<!\b[A-Z])(?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bMs)(?<!\bSt)(?<!\b[a-z]\.[a-z])(?<!\.[A-Z])\.)"
    r"(?=[\"'\u2019\u201d)\]]*(?:\s|\Z))|[\u3002\uff01\uff1f\u0964\u061f\u06d4\u104b\u1362\u17d4]"
)


def split_words(text: str) -> list[str]:
    """Splits a text into words and marks (each mark is a word), close to spaCy's rules for English. Scripts without
    spaces are split into letters. Combining characters do not split a word.
    """
    words: list[str] = []
    for part in plain.words(text):
        if part.isalpha():
            words.append(part)
        elif part.isascii() or not any(map(_is_sign, part)):
            words += _WORD_PARTS.findall(part)
        else:
            for is_in_word, run in groupby(part, _is_word_character):
                word = "".join(run)
                words += [word] if is_in_word else word
    return words


def _is_sign(character: str) -> bool:
    """Whether a character is written together with letters, like the vowels of Indian scripts. Variation selectors are
    not.
    """
    if "\ufe00" <= character <= "\ufe0f":
        return False
    return character == "\u200c" or unicodedata.category(character) in ("Mn", "Mc")


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "\u200d" or _is_sign(character)


def _sentences(line: str) -> int:
    ends = [*_SENTENCE_END.finditer(line)]
    tail = line[ends[-1].end() :] if ends else line
    return len(ends) + any(map(str.isalnum, tail))


class Page:
    """A text with measures that several rules need, each computed once."""

    def __init__(self, text: str, language: str | None) -> None:
        self.text = text
        self.language = language
        self.words = split_words(text)
        self.plain_words = [word for word in self.words if not _PUNCTUATION.issuperset(word)]
        self.lines = text.splitlines()
        self.nonblank_lines = [line for line in text.split("\n") if line.strip()]
        self.c4_by_min_words: dict[int, _Lines] = {}

    def character_share(self, count: float) -> float:
        """The share of ``count`` characters in the text."""
        return count / (len(self.text) or 1)

    def line_share(self, predicate: Callable[[str], bool]) -> float:
        return sum(map(predicate, self.lines)) / (len(self.lines) or 1)

    def count_per_word(self, count: int) -> float:
        return count / (len(self.words) or 1)


class Rule(NamedTuple):
    """``passes`` decides whether a page passes; ``meaning`` describes the condition. ``excluded_languages`` are
    languages without a threshold; with ``only_languages`` all other languages have none."""

    name: str
    meaning: str
    passes: Callable[[Page], bool]
    excluded_languages: frozenset[str] = frozenset()
    only_languages: frozenset[str] = frozenset()

    def applies(self, language: str | None) -> bool:
        """Whether the rule has a threshold for a text of this language."""
        return language not in self.excluded_languages and (not self.only_languages or language in self.only_languages)


def _count_repeated(parts: Sequence[str]) -> tuple[int, int]:
    """Counts the parts that occurred before. Returns their number and their characters."""
    seen: set[str] = set()
    count = characters = 0
    for part in parts:
        if part in seen:
            count += 1
            characters += len(part)
        seen.add(part)
    return count, characters


def _top_run_share(page: Page, size: int) -> float:
    """The characters of the most frequent run of words, including spaces, in all its places; the first of equally
    frequent runs.
    """
    words = page.words
    runs = Counter(zip(*(words[start:] for start in range(size)), strict=False))
    if not runs:
        return 0
    top_run, times = max(runs.items(), key=lambda run_count: run_count[1])
    return page.character_share((sum(map(len, top_run)) + size - 1) * times)


def _repeated_run_share(page: Page, size: int) -> float:
    seen: set[str] = set()
    words, characters, start = page.words, 0, 0
    while start <= len(words) - size:
        run = "".join(words[start : start + size])
        if run in seen:
            characters += len(run)
            start += size
        else:
            seen.add(run)
            start += 1
    return page.character_share(characters)


def _repetition_rules(
    parts_of: Callable[[Page], list[str]], max_share: float, max_character_share: float
) -> Iterator[Callable[[Page], bool]]:
    def has_few_repetitions(page: Page) -> bool:
        parts = parts_of(page)
        return _count_repeated(parts)[0] / len(parts) <= max_share

    def has_short_repetitions(page: Page) -> bool:
        return page.character_share(_count_repeated(parts_of(page))[1]) <= max_character_share

    yield has_few_repetitions
    yield has_short_repetitions


def _run_rules(
    name: str, meaning: str, share: Callable[[Page, int], float], runs: Iterable[tuple[int, float]]
) -> Iterator[Rule]:
    for size, max_share in runs:
        is_below_share = partial(
            lambda page, size, max_share: share(page, size) <= max_share, size=size, max_share=max_share
        )
        yield Rule(name.format(size), meaning.format(max_share, size), is_below_share, UNSPACED)


def _mean_length(page: Page) -> float:
    return sum(map(len, page.plain_words)) / (len(page.plain_words) or 1)


_has_few_repeated_paragraphs, _has_short_repeated_paragraphs = _repetition_rules(
    lambda page: re.split(r"\n{2,}", page.text.strip()), 0.3, 0.2
)
_has_few_repeated_lines, _has_short_repeated_lines = _repetition_rules(
    lambda page: re.split(r"\n+", page.text), 0.3, 0.2
)

GOPHER: Final = (
    Rule("words", "50 to 100,000 words", lambda page: 50 <= len(page.plain_words) <= 100_000),
    Rule("mean_word_length", "3 to 10 characters a word", lambda page: 3 <= _mean_length(page) <= 10, _DENSE_LANGUAGES),
    Rule("hashes", "at most 0.1 # a word", lambda page: page.count_per_word(page.text.count("#")) <= 0.1),
    Rule(
        "ellipses",
        "at most 0.1 ellipses a word",
        lambda page: page.count_per_word(page.text.count("...") + page.text.count("\u2026")) <= 0.1,
    ),
    Rule(
        "bullet_lines",
        "at most 0.9 of the lines begin with a bullet",
        lambda page: page.line_share(lambda line: line.lstrip().startswith(("\u2022", "-"))) <= 0.9,
    ),
    Rule(
        "ellipsis_lines",
        "at most 0.3 of the lines end with an ellipsis",
        lambda page: page.line_share(lambda line: line.rstrip().endswith(("...", "\u2026"))) <= 0.3,
    ),
    Rule(
        "alphabetic_words",
        "at least 0.8 of the words and marks have a letter",
        lambda page: (
            page.count_per_word(sum(word.isalpha() or any(map(str.isalpha, word)) for word in page.words)) >= 0.8
        ),
    ),
    Rule(
        "stop_words",
        "at least two of eight stop words",
        lambda page: len(_STOP_WORDS.intersection(page.words)) >= 2,
        only_languages=frozenset(("eng",)),
    ),
    Rule("duplicate_paragraphs", "at most 0.3 of the paragraphs are repetitions", _has_few_repeated_paragraphs),
    Rule(
        "duplicate_paragraph_characters",
        "at most 0.2 of the characters in repeated paragraphs",
        _has_short_repeated_paragraphs,
    ),
    Rule("duplicate_lines", "at most 0.3 of the lines are repetitions", _has_few_repeated_lines),
    Rule("duplicate_line_characters", "at most 0.2 of the characters in repeated lines", _has_short_repeated_lines),
    *_run_rules("top_{}gram", "at most {} of the characters in the most frequent {} words", _top_run_share, TOP_RUNS),
    *_run_rules(
        "duplicate_{}grams",
        "at most {} of the characters in repeated runs of {} words",
        _repeated_run_share,
        REPEATED_RUNS,
    ),
)

FINEWEB: Final = (
    Rule(
        "punctuated_lines",
        "at least 0.12 of the lines end with an end mark",
        lambda page: (
            sum(line.endswith(_END_MARKS) for line in page.nonblank_lines) / (len(page.nonblank_lines) or 1) >= 0.12
        ),
        NO_MARKS,
    ),
    Rule(
        "short_lines",
        "at most 0.67 of the lines have 30 characters or fewer",
        lambda page: sum(len(line) <= 30 for line in page.nonblank_lines) / (len(page.nonblank_lines) or 1) <= 0.67,
        _DENSE_LANGUAGES,
    ),
    Rule(
        "duplicate_characters",
        "at most 0.01 of the characters in repeated lines",
        lambda page: _count_repeated(page.nonblank_lines)[1] / (len(page.text.replace("\n", "")) or 1) <= 0.01,
    ),
    Rule(
        "lines_per_word",
        "at most 0.3 lines a word",
        lambda page: page.count_per_word(page.text.count("\n")) <= 0.3,
    ),
)


class _Lines(NamedTuple):
    """C4's counts of the lines that it would keep: the number of sentences, and whether a phrase excludes the page."""

    sentences: int
    lorem_ipsum: bool
    curly_bracket: bool


def _c4_lines(page: Page, min_words: int) -> _Lines:
    lines = page.c4_by_min_words.get(min_words)
    if lines is None:
        lines = page.c4_by_min_words[min_words] = _scan_c4_lines(page, min_words)
    return lines


def _scan_c4_lines(page: Page, min_words: int) -> _Lines:
    english = page.language == "eng"
    ends = _C4_END_MARKS if english else _ALL_END_MARKS
    count, has_lorem_ipsum, has_bracket = 0, False, False
    for raw_line in page.lines:
        stripped = raw_line.strip()
        words = stripped.split() if english else plain.words(stripped)
        if len(words) < min_words or (
            len(stripped) > _LONGEST_WORD and any(len(word) > _LONGEST_WORD for word in words)
        ):
            continue
        line = _CITATION.sub("", stripped) if "[" in stripped else stripped
        if page.language not in NO_MARKS and (not line.endswith(ends) or line.endswith("...")):
            continue
        lowered = line.lower()
        if "lorem ipsum" in lowered:
            has_lorem_ipsum = True
        elif "javascript" in lowered:
            pass
        elif "{" in line:
            has_bracket = True
        elif not any(phrase in lowered for phrase in _POLICY):
            count += _sentences(line)
    return _Lines(count, has_lorem_ipsum, has_bracket)


def _c4_rules(sentences: int, words: int) -> tuple[Rule, ...]:
    def has_enough_sentences(page: Page) -> bool:
        return _c4_lines(page, words).sentences >= sentences

    line_description = f"lines with an end mark and {words} words"
    return (
        Rule(
            "lorem_ipsum", f"no lorem ipsum in {line_description}", lambda page: not _c4_lines(page, words).lorem_ipsum
        ),
        Rule(
            "curly_bracket",
            f"no curly bracket in {line_description}",
            lambda page: not _c4_lines(page, words).curly_bracket,
        ),
        Rule("sentences", f"at least {sentences} sentences in {line_description}", has_enough_sentences, NO_MARKS),
    )


#: By name. ``c4_by_min_words`` has datatrove's numbers, ``c4-tfds`` those of TensorFlow Datasets, where C4 was made.
PRESETS: Final[dict[str, tuple[Rule, ...]]] = {
    "gopher": GOPHER,
    "fineweb": FINEWEB,
    "c4": _c4_rules(5, 3),
    "c4-tfds": _c4_rules(3, 5),
}


@cache
def rules_of(preset: str, language: str | None) -> tuple[Rule, ...]:
    """The rules of a preset that have a threshold for a language."""
    return tuple(rule for rule in PRESETS[preset] if rule.applies(language))


def failed_rules(text: str, language: str | None, presets: Sequence[str]) -> set[str]:
    """The rules that a text fails, as ``preset: rule``."""
    page = Page(text, language)
    return {
        f"{preset}: {rule.name}" for preset in presets for rule in rules_of(preset, language) if not rule.passes(page)
    }


def unapplied_rules(presets: Sequence[str], language: str | None) -> list[str]:
    """The rules of presets without a threshold for a language, as ``preset: rule``."""
    return [f"{preset}: {rule.name}" for preset in presets for rule in PRESETS[preset] if not rule.applies(language)]
