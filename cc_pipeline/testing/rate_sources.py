"""The test suite for rate sources: inherit :class:`RateSourceTests`, and open one of a host."""

from __future__ import annotations

import time
from typing import Final

from cc_pipeline.transport.rate_source import RateSource
from cc_pipeline.transport.rates import SourceLimits

_RATE: Final = 20.0
_LIMITS: Final = SourceLimits(_RATE, 8)


class RateSourceTests:
    """Tests a rate source: ``open_source`` opens that of one process at ``host``; unused hosts are new to it."""

    def open_source(self, host: str, limits: SourceLimits) -> RateSource:
        """Opens a rate source as a separate process would."""
        raise NotImplementedError

    def test_no_second_has_more_slots_than_the_rate(self) -> None:
        """Two processes take slots in turn, for some seconds ahead."""
        sources = [self.open_source("slots.example.org", _LIMITS) for _ in range(2)]
        moments: list[float] = []
        for round_number in range(40):
            wait, spacing, count = sources[round_number % 2].slots(5, _RATE, 0.0)
            assert 1 <= count <= 5
            moments += [time.monotonic() + wait + number * spacing for number in range(count)]
        moments.sort()
        assert len(moments) >= 40
        for place, moment in enumerate(moments):
            assert sum(other_moment < moment + 1.0 for other_moment in moments[place:]) <= _RATE
        for source in sources:
            source.close()

    def test_slots_begin_after_the_wait(self) -> None:
        """A pause that a host demanded is kept, even if slots are free."""
        source = self.open_source("pause.example.org", _LIMITS)
        assert source.slots(1, _RATE, 3.0)[0] > 2.5
        source.close()

    def test_one_host_does_not_wait_for_another(self) -> None:
        """The slots of one host do not reduce those of others."""
        busy, free = self.open_source("busy.example.org", _LIMITS), self.open_source("free.example.org", _LIMITS)
        busy.slots(1, _RATE, 30.0)
        assert free.slots(1, _RATE, 0.0)[0] < 5.0
        assert (busy.renew(0), free.renew(0)) == (8, 8)
        busy.close()
        free.close()

    def test_requests_under_way_never_exceed_the_limit_and_are_given_back(self) -> None:
        """A share shrinks when other sources open, and grows again when one of them closes."""
        sources = [self.open_source("shares.example.org", _LIMITS) for _ in range(3)]
        shares = [0, 0, 0]
        for _ in range(4):
            for number, source in enumerate(sources):
                shares[number] = source.renew(0)
                assert sum(shares) <= _LIMITS.concurrency
        assert min(shares) >= 1, "each has some"
        sources.pop().close()
        for _ in range(3):
            shares = [source.renew(0) for source in sources]
        assert sum(shares) == _LIMITS.concurrency
        for source in sources:
            source.close()

    def test_it_has_a_name_and_positive_times(self) -> None:
        """Messages use its name, and its seconds are above zero."""
        source = self.open_source("name.example.org", _LIMITS)
        assert source.name and source.life > 0 and source.retry_seconds > 0
        source.close()
