"""Several places with the same objects: the run completes whenever one of them is whole, and asks the others little."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.addresses import NO_ACCESS, Access
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.stores.answer import S3Options, Timeouts
from cc_pipeline.transport.budget import Budget, SlotReservation
from cc_pipeline.transport.circuit_breaker import RefusalPolicy
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.mirror import PlaceOptions
from cc_pipeline.transport.mirror_set import branch_of
from cc_pipeline.transport.outage import BreakerOpen, OutagePolicy
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.rate_limiter import RateLimiter
from cc_pipeline.transport.rates import SourceLimits
from cc_pipeline.transport.states import budget_state, reset_breaker
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.refusal_events import silent

QUICK = RetryPolicy(attempts=4, base=0.001, longest=0.005)
SHORT = Timeouts(connect=5, silence=1, total=1.5, slowest=100_000)
#: Out for longer than a test lasts, after few failures.
OUT = OutagePolicy(threshold=3, first=60)
DATA = bytes(range(256)) * 40
CRAWLS = ("CC-MAIN-2013-20", "CC-MAIN-2024-10")


def key_of(number: int, crawl: str = CRAWLS[1]) -> str:
    return f"crawl-data/{crawl}/segments/1700000000.{number % 3}/warc/f{number}.warc.gz"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bucket")
    for crawl in CRAWLS:
        for number in range(20):
            path = root / key_of(number, crawl)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(DATA)
    return root


@pytest.fixture
def servers(bucket: Path) -> Iterator[list[FaultServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FaultServer(bucket)) for _ in range(3)]


def over(places: Iterable[FaultServer | str], **options: object) -> Transport:
    first, *others = [place if isinstance(place, str) else place.url for place in places]
    settings: dict[str, object] = {"retry": QUICK, "outage": OUT}
    return Transport(first, PlaceOptions(**settings | options), mirrors=[(place, NO_ACCESS) for place in others])


def ranges(count: int = 200, crawl: str = CRAWLS[1]) -> list[ByteRange]:
    return [ByteRange(key_of(n % 20, crawl), 7 * (n // 20), 100, tag=n) for n in range(count)]


def all_came(transport: Transport, asked: list[ByteRange]) -> Counter[str]:
    """Asserts that every range came, and gives how many each place served."""
    served: Counter[str] = Counter()
    seen = set()
    for got in transport.read_many(asked, concurrency=8):
        assert isinstance(got, RangeBytes), got
        assert got.data == DATA[got.offset : got.offset + 100]
        served[got.source] += 1
        seen.add(got.tag)
    assert len(seen) == len(asked)
    return served


LYING = ("short", "long", "empty", "whole_object", "xml_200", "wrong_range", "no_range")
FAILING = ("403", "429", "500", "503", "reset", "cut", "stall")


@pytest.mark.parametrize("kind", [*FAILING, *LYING])
def test_one_whole_place_is_enough_and_a_failing_one_is_soon_left_alone(
    servers: list[FaultServer], tmp_path: Path, kind: str
) -> None:
    bad, good, third = servers
    bad.set_rules([Rule(kind, times=None)])
    waits = {"timeouts": SHORT} if kind == "stall" else {}
    with over([bad, good, third], refusals=RefusalPolicy(probes=(60.0,)), **waits) as transport:
        served = all_came(transport, ranges())
    assert served == {transport.sources[1]: 200}
    assert not third.hits
    assert len(good.hits) == 200
    assert len(bad.hits) <= 30


def test_a_host_that_refuses_connections_is_left_alone_by_all_processes_that_share_a_budget(
    servers: list[FaultServer], tmp_path: Path
) -> None:
    dead = f"http://127.0.0.1:{free_port()}/"
    budget = tmp_path / "budget.sqlite"
    with over([dead, servers[0]], budget_path=budget) as transport:
        all_came(transport, ranges())
        # one that could not connect sent nothing, and is a request all the same
        assert transport.stats.faults["unreachable"] <= 16
    with over([dead, servers[0]], budget_path=budget) as transport:
        all_came(transport, ranges(20))
        assert not transport.stats.faults["unreachable"]
    [out] = [state for state in budget_state(budget) if state.out is not None]
    assert out.host in dead
    assert out.out is not None
    assert "unreachable" in out.out.reason


@pytest.mark.parametrize("rate", [None, 40.0])
def test_the_preferred_place_serves_again_when_it_is_well(servers: list[FaultServer], rate: float | None) -> None:
    first, second, _ = servers
    first.set_rules([Rule("500", times=None)])
    with over([first, second], outage=OutagePolicy(threshold=2, first=0.05, longest=0.1), rate=rate) as transport:
        assert set(all_came(transport, ranges(20))) == {transport.sources[1]}
        first.set_rules([])
        until = time.monotonic() + 20
        while transport.read(key_of(1), 0, 4).source != transport.sources[0]:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert set(all_came(transport, ranges(20))) == {transport.sources[0]}


def test_while_a_host_is_out_one_request_at_a_time_asks_for_it(servers: list[FaultServer]) -> None:
    first, second, _ = servers
    first.set_rules([Rule("stall", times=None)])
    policy = OutagePolicy(threshold=2, first=0.1, longest=0.4)
    with over([first, second], outage=policy, timeouts=SHORT) as transport:
        all_came(transport, ranges(20))
        before = len(first.hits)
        started = time.monotonic()
        while time.monotonic() - started < 3.0:
            all_came(transport, ranges(8))
        waited = time.monotonic() - started
    # each of them takes so long that the next one would be due
    assert len(first.hits) - before <= 2 + waited / SHORT.silence


def test_a_dead_host_that_somebody_thinks_well_is_left_alone_again(servers: list[FaultServer], tmp_path: Path) -> None:
    bad, good, _ = servers
    bad.set_rules([Rule("500", times=None)])
    budget = tmp_path / "budget.sqlite"
    with over([bad, good], budget_path=budget) as transport:
        for _ in range(3):
            all_came(transport, ranges())
            [out] = [state for state in budget_state(budget) if state.out is not None]
            assert reset_breaker(budget, out.host)
        all_came(transport, ranges())
    assert len(bad.hits) <= 4 * (8 + OUT.threshold)


def test_one_file_that_always_fails_takes_no_other_with_it(servers: list[FaultServer], tmp_path: Path) -> None:
    whole, budget = servers[0], tmp_path / "budget.sqlite"
    (tmp_path / "empty").mkdir()
    whole.set_rules([Rule("500", key_of(7), times=None)])
    # neighbours of one file come one after the other
    asked = sorted(ranges(400), key=lambda one: one.key)
    with FaultServer(tmp_path / "empty") as empty, over([whole, empty], budget_path=budget) as transport:
        came: Counter[str] = Counter()
        for got in transport.read_many(asked, concurrency=8):
            came[key_of(7) if got.key == key_of(7) else "others"] += isinstance(got, RangeBytes)
            assert isinstance(got, RangeBytes) or got.kind is FaultKind.SERVER_ERROR
    assert came == {"others": 380, key_of(7): 0}
    assert not [state for state in budget_state(budget) if state.out is not None]
    # as with one place: as often as the retry policy says
    assert len(whole.hits) <= 380 + 20 * QUICK.attempts


def test_a_file_that_fails_at_one_place_is_soon_asked_of_the_next_alone(servers: list[FaultServer]) -> None:
    first, second, _ = servers
    first.set_rules([Rule("500", key_of(7), times=None)])
    with over([first, second]) as transport:
        served = all_came(transport, ranges(400))
        assert served == {transport.sources[0]: 380, transport.sources[1]: 20}
        assert len([hit for hit in first.hits if hit.fault]) <= 3 + 8
        # nobody knows what the first would have said
        [got] = transport.read_many([ByteRange(key_of(7), 0, 4)])
        assert isinstance(got, RangeBytes)
        assert got.is_inconclusive
        # where the next has it no more, it is asked again
        first.set_rules([])
        second.set_rules([Rule("404", times=None)])
        assert transport.read(key_of(7), 0, 4).source == transport.sources[0]
        second.set_rules([])
        assert transport.read(key_of(7), 0, 4).source == transport.sources[0]


def test_whose_file_fails_does_not_find_out_whether_its_host_is_back(
    servers: list[FaultServer], tmp_path: Path
) -> None:
    first, budget = servers[0], tmp_path / "budget.sqlite"
    (tmp_path / "empty").mkdir()
    first.set_rules([Rule("500", key_of(7), times=None)])
    policy = OutagePolicy(threshold=3, first=0.5, longest=30)
    patient = RetryPolicy(attempts=3, base=0.001, longest=20)
    with (
        FaultServer(tmp_path / "empty") as empty,
        over([first, empty], budget_path=budget, outage=policy, retry=patient) as transport,
    ):
        with pytest.raises(RangeFault):
            transport.read(key_of(7), 0, 4)
        host = first.url.removeprefix("http://").rstrip("/")
        told = Budget(budget, host, transport.limits, None, policy)
        for _ in range(policy.threshold):
            told.apply_event(silent())
        told.close()
        # the one that fails stands first, and the others come all the same
        asked = [ByteRange(key_of(number), 0, 4, tries=1) for number in (7, 1, 2, 3)]
        faults = [got for got in transport.read_many(asked) if isinstance(got, RangeFault)]
    assert [fault.key for fault in faults] == [key_of(7)], faults


def _void_at_once(given: SlotReservation | BreakerOpen) -> SlotReservation | BreakerOpen:
    return replace(given, start=0.0) if isinstance(given, SlotReservation) else given


def test_the_request_that_finds_out_is_sent_though_it_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, policy = SourceLimits(rate=1_000.0, concurrency=4), OutagePolicy(first=0.0)
    lease = Budget.reserve_slots
    monkeypatch.setattr(Budget, "reserve_slots", lambda *given: _void_at_once(lease(*given)))

    async def asked() -> None:
        gate = RateLimiter(lambda: Budget(tmp_path / "budget.sqlite", "a.example", limits, None, policy), policy)
        try:
            await asyncio.wait_for(gate.enter(), 10)
            gate.leave()
        finally:
            await gate.close()

    budget = Budget(tmp_path / "budget.sqlite", "a.example", limits, None, policy)
    for _ in range(policy.threshold):
        budget.apply_event(silent())
    budget.close()
    asyncio.run(asked())


def test_all_places_out_is_said_so_that_a_run_ends(servers: list[FaultServer]) -> None:
    for server in servers:
        server.set_rules([Rule("500", times=None)])
    with over(servers) as transport:
        outcomes = list(transport.read_many(ranges(100), concurrency=4))
    assert all(isinstance(one, RangeFault) for one in outcomes)
    assert isinstance(outcomes[-1], RangeFault)
    assert outcomes[-1].kind is FaultKind.BREAKER_OPEN
    assert all(len(server.hits) <= 16 for server in servers)


def test_a_short_outage_of_everything_is_waited_for(servers: list[FaultServer]) -> None:
    for server in servers:
        server.set_rules([Rule("500", times=1), Rule("500", times=1, by_key=True)])
    policy = OutagePolicy(threshold=1, first=0.05, longest=0.1)
    with over(servers, outage=policy, retry=RetryPolicy(attempts=6, base=0.01, longest=5)) as transport:
        assert transport.read(key_of(1), 0, 100).data == DATA[:100]


def test_what_a_place_lacks_is_not_asked_for_again_and_again(servers: list[FaultServer]) -> None:
    young, whole, _ = servers
    young.set_rules([Rule("404", f"*{CRAWLS[0]}*", times=None)])
    with over([young, whole]) as transport:
        assert set(all_came(transport, ranges(200, CRAWLS[0]))) == {transport.sources[1]}
        # three files tell of the whole crawl; others were under way by then
        assert len(young.hits) <= 12
        assert set(all_came(transport, ranges(20, CRAWLS[1]))) == {transport.sources[0]}
        # absence is no fault of the host
        assert not transport.stats.faults.keys() - {"not_found"}


def test_one_file_that_a_place_lacks_says_nothing_about_the_others(servers: list[FaultServer]) -> None:
    first, second, _ = servers
    first.set_rules([Rule("404", f"{key_of(n)}", times=None) for n in (1, 2, 3, 4)])
    with over([first, second]) as transport:
        assert transport.read(key_of(0), 0, 100).source == transport.sources[0]
        served = all_came(transport, ranges(200))
    assert served == {transport.sources[0]: 160, transport.sources[1]: 40}
    assert len([hit for hit in first.hits if hit.fault]) <= 16


def test_absent_is_only_what_every_place_says_it_lacks(servers: list[FaultServer]) -> None:
    third = servers[2]
    with over(servers) as transport:
        for _ in range(2):
            with pytest.raises(RangeFault) as raised:
                transport.read("crawl-data/none", 0, 4)
            assert raised.value.kind is FaultKind.NOT_FOUND
        assert not transport.exists("crawl-data/none")
        # each was really asked each time
        assert [len(server.hits) for server in servers] == [3, 3, 3]
        third.set_rules([Rule("500", times=None)])
        with pytest.raises(RangeFault) as raised:
            transport.read("crawl-data/none", 0, 4)
        assert raised.value.kind is FaultKind.SERVER_ERROR
        with pytest.raises(RangeFault):
            transport.exists("crawl-data/none")


def test_absent_at_one_and_left_alone_at_the_other_is_unknown(servers: list[FaultServer]) -> None:
    first, second, _ = servers
    first.set_rules([Rule("500", times=None)])
    with over([first, second]) as transport:
        all_came(transport, ranges(20))
        with pytest.raises(RangeFault) as raised:
            transport.read("crawl-data/none", 0, 4)
        assert raised.value.kind is FaultKind.UNREACHABLE
        all_came(transport, ranges(20))


def test_bytes_that_turned_out_wrong_are_asked_of_another_place(servers: list[FaultServer]) -> None:
    with over(servers) as transport:
        one, two, three = transport.sources
        assert transport.read(key_of(1), 0, 4).source == one

        def asked(*avoid: str) -> RangeBytes:
            [got] = transport.read_many([ByteRange(key_of(1), 0, 4, avoid=frozenset(avoid))])
            assert isinstance(got, RangeBytes)
            return got

        assert asked(one).source == two
        assert asked(one, two).source == three
        # where all are doubted, the order is the first one again
        assert asked(one, two, three).source == one
        servers[1].set_rules([Rule("500", times=None)])
        servers[2].set_rules([Rule("404", times=None)])
        got = asked(one)
        # one of the others may have better ones: that is not known
        assert (got.source, got.is_inconclusive) == (one, True)


def test_a_place_that_lacks_others_is_asked_before_bytes_are_asked_again_that_were_wrong(
    servers: list[FaultServer], tmp_path: Path
) -> None:
    (tmp_path / key_of(19)).parent.mkdir(parents=True)
    (tmp_path / key_of(19)).write_bytes(DATA)
    with FaultServer(tmp_path) as part, over([servers[0], part]) as transport:
        avoid = frozenset([transport.sources[0]])
        for number in (0, 1, 2, 19):
            [got] = transport.read_many([ByteRange(key_of(number), 0, 100, avoid=avoid)])
            assert isinstance(got, RangeBytes)
            assert got.source == transport.sources[number == 19]


def test_pieces_of_one_file_come_from_places_where_it_has_the_same_length(servers: list[FaultServer]) -> None:
    first, second, third = servers
    with over(servers) as transport:
        footer = transport.read_suffix(key_of(1), 8)
        assert footer.total == len(DATA)
        first.set_rules([Rule("500", times=None)])
        second.set_rules([Rule("other_total", times=None)])
        [page] = transport.read_many([ByteRange(key_of(1), 0, 100, total=footer.total)])
        assert isinstance(page, RangeBytes)
        assert page.source == transport.sources[2]
        # without a length to keep to, that it differs is said
        transport.read(key_of(1), 50, 100)
        assert "bytes at" in transport.stats.differing[key_of(1)]
        third.set_rules([Rule("other_total", times=None)])
        first.set_rules([Rule("other_total", times=None)])
        [page] = transport.read_many([ByteRange(key_of(2), 0, 100, total=footer.total)])
        assert isinstance(page, RangeFault)


def test_whose_bytes_were_wrong_is_found_out_where_several_gave_some(servers: list[FaultServer]) -> None:
    def whole(data: bytes) -> bytes:
        if data != DATA:
            raise DataFault(DataKind.MALFORMED, key_of(1), 0, "not what was written")
        return data

    for places, wrong in ((servers[:2], (0,)), (servers[:2], (1,)), (servers, (0, 1))):
        for server in servers:
            server.set_rules([])
        with over(places, outage=OutagePolicy(threshold=1000)) as transport:
            # each place gives some of it
            for number, _ in enumerate(places):
                for server in places[:number]:
                    server.set_rules([Rule("500", times=None)])
                assert transport.read(key_of(1), 0, 4).source == transport.sources[number]
            for number, server in enumerate(places):
                server.set_rules([Rule("garbage", times=None)] if number in wrong else [])
            assert transport.read_parsed(key_of(1), whole) == DATA
            # what is wrong everywhere is asked for a few times
            for server in places:
                server.set_rules([Rule("garbage", times=None)])
                server.hits.clear()
            with pytest.raises(DataFault):
                transport.read_parsed(key_of(1), whole)
            assert sum(len(server.hits) for server in places) <= 2 * len(places)


def test_etags_of_one_place_say_nothing_about_another(servers: list[FaultServer]) -> None:
    first, second, _ = servers
    second.set_rules([Rule("changed_etag", times=None)])
    with over([first, second]) as transport:
        etag = transport.read(key_of(1), 0, 4).etag
        assert etag is not None
        first.set_rules([Rule("500", times=None)])
        assert transport.read(key_of(1), 0, 4, etag=etag).source == transport.sources[1]
        # a note of the time when there was one place
        assert transport.read(key_of(1), 0, 4, etag='"old"').source == transport.sources[1]
    with over([first, second]) as transport:
        first.set_rules([Rule("changed_etag", times=None)])
        assert transport.read(key_of(1), 0, 4, etag=etag).source == transport.sources[1]
    first.set_rules([])
    with Transport(second.url, PlaceOptions(retry=QUICK)) as alone:
        assert alone.read(key_of(1), 0, 4, etag=etag).data == DATA[:4]
    with Transport(first.url, PlaceOptions(retry=QUICK)) as alone:
        assert alone.read(key_of(1), 0, 4, etag=etag).data == DATA[:4]
        first.set_rules([Rule("changed_etag", times=None)])
        with pytest.raises(RangeFault):
            alone.read(key_of(1), 0, 4, etag=etag)


def test_each_host_has_its_own_rate_and_sees_only_its_own_credentials(
    servers: list[FaultServer], tmp_path: Path
) -> None:
    first, second, _ = servers
    first.set_rules([Rule("500", share=0.5, times=None)])
    mirrors = [(second.url, Access("me", "two", "token=2"))]
    transport = Transport(
        first.url,
        PlaceOptions(
            rate=50.0, budget_path=tmp_path / "budget.sqlite", retry=QUICK, outage=OutagePolicy(threshold=1000)
        ),
        mirrors=mirrors,
        access=Access("me", "one"),
    )
    with transport:
        all_came(transport, ranges(80))
    for server, password, query in ((first, "one", ""), (second, "two", "token=2")):
        shown = base64.b64encode(f"me:{password}".encode()).decode()
        assert {hit.authorization for hit in server.hits} == {f"Basic {shown}"}
        assert {hit.query for hit in server.hits} == {query}
        times = sorted(hit.at for hit in server.hits)
        assert max(sum(start <= at < start + 1 for at in times) for start in times) <= 52
    assert "two" not in repr(transport.sources)


def test_each_bucket_is_asked_at_its_own_endpoint(bucket: Path, tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).symlink_to(bucket)
    with FaultServer(tmp_path / "mine") as one, FaultServer(tmp_path / "theirs") as two:
        buckets = {"theirs": S3Options(two.url.rstrip("/"), anonymous=True)}
        with Transport(
            "s3://theirs",
            PlaceOptions(
                buckets=buckets, retry=QUICK, outage=OUT, s3=S3Options(endpoint=one.url.rstrip("/"), anonymous=True)
            ),
            mirrors=[("s3://mine", NO_ACCESS)],
        ) as transport:
            assert transport.read(key_of(1), 0, 4).source == "s3://theirs"
            two.set_rules([Rule("500", times=None)])
            assert transport.read(key_of(1), 0, 4).source == "s3://mine"
            assert all_came(transport, ranges()) == {"s3://mine": 200}


def test_a_folder_may_stand_before_a_web_place(servers: list[FaultServer], bucket: Path, tmp_path: Path) -> None:
    here = tmp_path / key_of(1)
    here.parent.mkdir(parents=True)
    here.write_bytes(DATA)
    with over([str(tmp_path), servers[0]]) as transport:
        assert transport.read(key_of(1), 0, 4).source == str(tmp_path)
        assert transport.read(key_of(2), 0, 4).source == servers[0].url
        assert transport.url(key_of(2), servers[0].url).startswith(servers[0].url)
        assert transport.read_all(key_of(1)).data == DATA
        info = transport.head(key_of(2))
        assert info is not None
        assert info.size == len(DATA)


def test_leaving_early_cancels_what_is_under_way_and_little_is_asked_ahead(servers: list[FaultServer]) -> None:
    first, second, _ = servers
    first.set_rules([Rule("500", times=None)])
    drawn = 0

    def requests() -> Iterator[ByteRange]:
        nonlocal drawn
        for one in ranges(2000):
            drawn += 1
            yield one

    with over([first, second]) as transport:
        answers = transport.read_many(requests(), concurrency=4)
        next(answers)
        answers.close()
        assert drawn <= 12
    assert threading.active_count() < 20
    assert len(second.hits) <= 12


def test_branches_are_cut_where_crawls_are_named() -> None:
    assert branch_of(key_of(1)) == f"crawl-data/{CRAWLS[1]}/"
    assert branch_of("cc-index/table/cc-main/warc/crawl=CC-MAIN-2024-10/subset=warc/part-0.parquet") == (
        "cc-index/table/cc-main/warc/crawl=CC-MAIN-2024-10/"
    )
    assert branch_of("crawl-data/CC-NEWS/2024/05/warc.paths.gz") == "crawl-data/CC-NEWS/2024/"
    assert branch_of("common-crawl/crawl-002/2010/01/06/1.arc.gz") == "common-crawl/crawl-002/"
    assert branch_of("collinfo.json") == "collinfo.json"
