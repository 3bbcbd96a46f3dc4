"""Near copies from sketches, against all pairs of exact sets of runs."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from cc_pipeline.documents.signals.quality import fingerprint
from cc_pipeline.extensions.policies.near_copies import near_duplicates


def some_texts(count: int, seed: int) -> tuple[list[str], list[set[tuple[str, ...]]]]:
    """Texts, a third of them copies with a few words replaced, and their runs of five words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 8))) for _ in range(4_000)]
    texts: list[list[str]] = []
    for _ in range(count):
        if texts and rng.random() < 0.34:
            text = list(rng.choice(texts))
            for _ in range(rng.choice([0, 1, 2, 5, 20])):
                text[rng.randrange(len(text))] = rng.choice(words)
        else:
            text = rng.choices(words, k=rng.randint(120, 260))
        texts.append(text)
    runs = [{tuple(text[at : at + 5]) for at in range(len(text) - 4)} for text in texts]
    return [" ".join(text) for text in texts], runs


def sketches_of(texts: list[str]) -> np.ndarray:
    return np.array([fingerprint(text).content_minhash for text in texts], np.int64).astype(np.uint32)


def test_what_is_dropped_is_like_one_that_is_kept_and_nothing_kept_is_like_another(tmp_path: Path) -> None:
    texts, runs = some_texts(250, 1)
    sketches = sketches_of(texts)
    dropped = near_duplicates((sketches[at : at + 37] for at in range(0, 250, 37)), 0.8, tmp_path)
    gone = dict(dropped.tolist())

    def common(one: int, other: int) -> float:
        return len(runs[one] & runs[other]) / len(runs[one] | runs[other])

    for later, earlier in gone.items():
        assert earlier < later and earlier not in gone
        assert common(later, earlier) > 0.6, "four standard errors below the threshold"
    kept = [number for number in range(250) if number not in gone]
    assert len(gone) > 30
    for place, one in enumerate(kept):
        for other in kept[place + 1 :]:
            assert common(one, other) < 0.97
    assert list(tmp_path.iterdir()) == []


def test_a_thousand_equal_texts_leave_one(tmp_path: Path) -> None:
    sketch = sketches_of(["one two three four five six seven eight nine ten"])
    dropped = near_duplicates([np.repeat(sketch, 1_000, axis=0)], 1.0, tmp_path)
    assert dropped.tolist() == [[number, 0] for number in range(1, 1_000)]
    for count in (0, 1):
        assert near_duplicates([sketch[:count]], 0.8, tmp_path).shape == (0, 2)
