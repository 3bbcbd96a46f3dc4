"""What processes share of a host: its state in a file, and slots for requests in flight, kept by the kernel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cc_pipeline.errors import EnvironmentFault, SourceRefuses
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.host_file import HostFile, read_hosts, reset_host
from cc_pipeline.transport.limits import SourceLimits
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy
from cc_pipeline.transport.slots import Slots
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.refusing_hosts import make_refuse

LIMITS = SourceLimits(rate=1_000.0, concurrency=4)


def options(path: Path, **more: Any) -> SourceOptions:
    values: dict[str, Any] = {"rate": 1_000.0, "concurrency": 4, "budget_path": path}
    return SourceOptions(**values | more)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    folder = tmp_path / "bucket"
    folder.mkdir()
    (folder / "f1").write_bytes(bytes(1_000))
    return folder


def test_a_slot_is_of_one_process_until_it_gives_it_back(tmp_path: Path) -> None:
    one, other = Slots(tmp_path / "slots", 2), Slots(tmp_path / "slots", 2)
    first, second = one.take(), one.take()
    assert None not in (first, second)
    assert one.take() is None
    assert other.take() is None
    one.give_back(first or 0)
    assert one.take() is None, "the other one has none, and waits"
    assert other.take() == first
    one.give_back(second or 0)
    assert one.take() == second, "nobody waits any more"
    one.close()
    assert other.take() == second
    other.close()


def test_a_request_waits_for_a_slot_and_an_idle_process_has_none(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, refused, take = tmp_path / "budget.sqlite", Event(), Slots.take

    def noted(slots: Slots) -> int | None:
        slot = take(slots)
        if slot is None:
            refused.set()
        return slot

    monkeypatch.setattr(Slots, "take", noted)
    with FaultServer(bucket) as server, Transport(server.url, options(path)) as transport:
        transport.read("f1", 0, 1)
        slots = Slots(path.with_suffix(".slots") / transport.host, 4)
        assert [slots.take() for _ in range(4)] == [0, 1, 2, 3], "an idle process has none"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(transport.read, "f1", 0, 1)
            assert refused.wait(480)
            assert len(server.hits) == 1
            slots.give_back(3)
            assert waiting.result().attempts == 1
        slots.close()


def test_another_process_waits_too_until_a_person_resets_the_host(bucket: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    with FaultServer(bucket) as server, Transport(server.url, options(path, wait=0.0)) as transport:
        make_refuse(path, transport.host, LIMITS, status=503)
        [report] = read_hosts(path)
        assert (report.host, report.refuses_until is None, report.last_refusal) == (transport.host, False, "status 503")
        with pytest.raises(SourceRefuses, match="status 503"):
            transport.read("f1", 0, 1)
        assert (reset_host(path, transport.host), reset_host(path, "unknown.example")) == (True, False)
        assert transport.read("f1", 0, 1).attempts == 1
        assert len(server.hits) == 1


def test_a_file_that_cannot_be_used_is_named_with_advice(bucket: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with FaultServer(bucket) as server, Transport(server.url, options(path)) as transport:
        for call in (lambda: transport.read("f1", 0, 1), lambda: list(transport.read_many([ByteRange("f1", 0, 1)]))):
            with pytest.raises(EnvironmentFault, match=r"budget.* cannot be used") as raised:
                call()
            assert "delete it" in raised.value.advice
        with pytest.raises(EnvironmentFault, match="budget"):
            read_hosts(path)
        path.unlink()
        assert transport.read("f1", 0, 1).data == bytes(1)
        assert len(server.hits) == 1


def test_a_host_whose_state_is_damaged_gets_no_request(bucket: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    with FaultServer(bucket) as server, Transport(server.url, options(path)) as transport:
        transport.read("f1", 0, 1)
        file = HostFile(path, transport.host, LIMITS)
        file._db.execute("update hosts set state = '{}'")
        file.close()
        with pytest.raises(EnvironmentFault, match=r"the state of .* cannot be read"):
            transport.read("f1", 0, 1)
        assert len(server.hits) == 1


def test_this_machine_has_neither_file_nor_slots(bucket: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    with FaultServer(bucket, rules=[Rule("503", times=1)]) as server:
        plain = SourceOptions(budget_path=path, retry=RetryPolicy(base=0.001, longest=0.005))
        with Transport(server.url, plain) as transport:
            assert transport.read("f1", 0, 1).attempts == 2
    assert list(tmp_path.iterdir()) == [bucket]
