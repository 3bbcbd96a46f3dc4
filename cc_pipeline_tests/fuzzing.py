"""Mutations of whole files, a budget (a few examples by default, ``CC_PIPELINE_FUZZ_SECONDS`` a test for more), and
two oracles beside exceptions: processor time and memory.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SECONDS = float(os.environ.get("CC_PIPELINE_FUZZ_SECONDS") or 0)

#: Bytes that formats give a meaning: signs, line breaks, magic numbers, extreme lengths.
WORDS = (
    *(
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b" ",
        b":",
        b"-",
        b"0",
        b"9" * 12,
        b"\0" * 8,
        b"\xff" * 4,
        b"\x7f\xff\xff\xff",
        b"\x80\0\0\0",
    ),
    *(b"\x1f\x8b\x08\0", b"WARC/1.0\r\n", b"Content-Length: 5\r\n", b"SEQ\x06", b"HTTP/1.1 200 OK\r\n\r\n"),
    b"http://a/ 1.2.3.4 20120101000000 text/html 5\n",
)


def fuzz(examples: int, **strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Run a test over drawn values: ``examples`` of them, or as many as fit into the seconds asked for."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def run() -> None:
            until = time.monotonic() + SECONDS
            while True:
                budget = settings(
                    max_examples=500 if SECONDS else examples, database=None, suppress_health_check=list(HealthCheck)
                )
                budget(given(**strategies)(test))()
                if time.monotonic() >= until:
                    return

        run.__name__ = test.__name__
        run.__doc__ = test.__doc__
        return run

    return decorate


_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@contextmanager
def bounded(seconds: float = 2.0, mib: float = 300.0) -> Iterator[None]:
    """Fails where what is inside takes more processor time, or more memory on top of what was held before.

    Time counts only where seconds of fuzzing were asked for: a plain run of the tests never asserts on it. What hangs
    in Python code, or in a regular expression, is broken off. Without ``/proc`` memory is not measured.
    """
    held = _kib("VmRSS")
    if held:
        _PEAK.write_text("5", encoding="ascii")  # the peak begins anew
    if SECONDS:
        signal.signal(signal.SIGVTALRM, _too_long)
        signal.setitimer(signal.ITIMER_VIRTUAL, 10 * seconds)
    begin = time.process_time()
    try:
        yield
    finally:
        if SECONDS:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    took, more = time.process_time() - begin, (_kib("VmHWM") - held) / 1024
    assert not SECONDS or took <= seconds, f"{took:.1f} s of processor time, {seconds} were allowed"
    assert more <= mib, f"{more:.0f} MiB more than before, {mib:.0f} were allowed"


def _too_long(number: int, frame: object) -> None:
    raise AssertionError("it took ten times the processor time that was allowed, and was broken off")


def _kib(name: str) -> int:
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name + ":")), 0)


@st.composite
def swollen(draw: st.DrawFn, tokens: Sequence[bytes], before: Sequence[bytes] = (b"",), most: int = 4000) -> bytes:
    """A few of ``tokens`` over and over, between a beginning and an end: what makes time grow faster than length.

    Up to ``most`` bytes, and a hundred times as many where seconds of fuzzing were asked for.
    """
    pattern = b"".join(draw(st.lists(st.sampled_from(tokens), min_size=1, max_size=3)))
    size = draw(st.integers(1, most * (100 if SECONDS else 1)))
    middle = draw(st.sampled_from(tokens)) if draw(st.booleans()) else b""
    body = pattern * (size // len(pattern) + 1)
    return draw(st.sampled_from(before)) + body + middle + draw(st.sampled_from((b"", *tokens)))


@st.composite
def edits(draw: st.DrawFn, bases: Sequence[bytes], most: int = 4) -> bytes:
    """One of ``bases``, changed in up to ``most`` places."""
    data = bytearray(draw(st.sampled_from(bases)))
    for _ in range(draw(st.integers(1, most))):
        at = draw(st.integers(0, len(data)))
        span = draw(st.integers(1, 40))
        kind = draw(st.sampled_from(("flip", "word", "insert", "delete", "repeat", "cut", "noise")))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "word":
            word = draw(st.sampled_from(WORDS))
            data[at : at + len(word)] = word
        elif kind == "insert":
            data[at:at] = draw(st.sampled_from(WORDS))
        elif kind == "delete":
            del data[at : at + span]
        elif kind == "repeat":
            data[at:at] = data[max(0, at - span * 10) : at]
        elif kind == "cut":
            del data[at:]
        else:
            data[at : at + span] = draw(st.binary(min_size=span, max_size=span))
    return bytes(data)


@st.composite
def scratches(draw: st.DrawFn, length: int) -> tuple[int, int, bytes]:
    """(begin, end, new bytes): one damaged stretch of a file of ``length`` bytes."""
    begin = draw(st.integers(0, length - 1))
    end = min(length, begin + draw(st.integers(0, 30)))
    return begin, end, draw(st.binary(max_size=30))
