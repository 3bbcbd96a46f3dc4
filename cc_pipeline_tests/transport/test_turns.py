"""In which turn several places are asked for one object, as what they did with it says."""

from __future__ import annotations

import asyncio

from cc_pipeline.stores.answer import Answer
from cc_pipeline.transport.faults import FaultKind, Finding, Verified
from cc_pipeline.transport.mirror_set import MirrorSet
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy, TransportStats


class _Place:
    """A place that answers, or fails, without any server."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.source = self.host = name
        self.is_up = True
        self._asked = asked

    async def range(self, wanted: ByteRange, tries: int) -> tuple[Verified | Finding, Answer, int]:
        self._asked.append(self.source)
        if not self.is_up:
            return Finding(FaultKind.SERVER_ERROR, "503"), Answer(0, {}, b""), 1
        return Verified(0, 10, None), Answer(206, {}, b"x"), 1


def test_a_place_that_failed_for_a_while_is_asked_before_one_whose_bytes_are_wrong() -> None:
    asked: list[str] = []
    wrong, other = _Place("wrong", asked), _Place("other", asked)
    places = MirrorSet([wrong, other], RetryPolicy(attempts=3, base=0.001), TransportStats())
    wanted = ByteRange("k", 0, 1, avoid=frozenset({"wrong"}))

    async def turns() -> None:
        other.is_up = False
        answered = await places.range(wanted)
        assert answered.place.source == "wrong"
        assert asked.count("other") >= 3, "that often, it counts as failing at this object"
        other.is_up = True
        for _ in range(2):
            asked.clear()
            answered = await places.range(wanted)
            assert (answered.place.source, asked) == ("other", ["other"])

    asyncio.run(turns())
