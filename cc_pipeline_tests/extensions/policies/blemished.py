"""English texts with every kind of blemish that published filters look for, and what datatrove 0.10's filters said of
them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

#: By whose words, then preset: the numbers of the texts that datatrove drops.
VERDICTS = Path(__file__).parent / "datatrove_verdicts.json"
_GENERATED = 400
_WORDS = (
    "river bridge winter letter garden signal market engine copper window harbour which carries across every morning "
    "the of and that have with a in it was for on as at by from they were had not but what all when there can said"
).split()


def _text(number: int) -> str:
    """An English text with some blemishes, always the same."""
    chance = random.Random(f"rules {number}")

    def sentence(least: int = 5, most: int = 22) -> str:
        said = " ".join(chance.choice(_WORDS) for _ in range(chance.randint(least, most))).capitalize()
        if chance.random() < 0.2:
            said = said.replace(" ", ", ", 1)
        return said + chance.choice((".",) * 6 + ("!", "?", "...", "", '."'))

    lines = [" ".join(sentence() for _ in range(chance.randint(1, 4))) for _ in range(chance.randint(1, 14))]
    blemishes: tuple[Callable[[], list[str]], ...] = (
        lambda: [lines[0]] * chance.randint(1, 6),
        lambda: [f"{chance.choice('-•*')} {sentence(2, 5)}" for _ in range(chance.randint(1, 30))],
        lambda: ["Read more..."] * chance.randint(1, 8),
        lambda: [sentence(1, 3) for _ in range(chance.randint(2, 40))],
        lambda: ["Please enable JavaScript to see this page."],
        lambda: ["function() { return 1; }."],
        lambda: ["Lorem ipsum dolor sit amet, it says here."],
        lambda: ["We use cookies to make this site better.", "See our privacy policy for more."],
        lambda: [" ".join(str(chance.randrange(10**6)) for _ in range(chance.randint(5, 80)))],
        lambda: ["# # # " * chance.randint(1, 30)],
        lambda: [" ".join([sentence(3, 6)] * chance.randint(2, 12))],
        lambda: ["supercalifragilistic" * chance.randint(1, 80) + " is a word."],
        lambda: [f"As was shown before [{chance.randint(1, 40)}]", "It is so.[citation needed]"],
        lambda: [""] * chance.randint(1, 3),
    )
    for _ in range(chance.randint(0, 3)):
        at = chance.randint(0, len(lines))
        lines[at:at] = chance.choice(blemishes)()
    return "\n".join(lines)


def texts() -> list[str]:
    """All of them, always the same."""
    return [_text(number) for number in range(_GENERATED)]
