"""What processes share of a host: its state in a file, and slots for requests in flight, kept by the kernel."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from cc_pipeline.errors import EnvironmentFault, SourceRefuses
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.host_file import HostFile, read_hosts, reset_host
from cc_pipeline.transport.limits import SourceLimits
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.slots import Slots
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.refusing_hosts import make_refuse

SPAWN = multiprocessing.get_context("spawn")
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


def _hold(folder: Path, ready: Any) -> None:
    Slots(folder, 1).take()
    ready.set()
    time.sleep(600)


@pytest.mark.process
def test_a_killed_process_frees_its_slots(tmp_path: Path) -> None:
    ready = SPAWN.Event()
    holder = SPAWN.Process(target=_hold, args=(tmp_path / "slots", ready))
    holder.start()
    assert ready.wait(60)
    slots = Slots(tmp_path / "slots", 1)
    assert slots.take() is None
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    assert slots.take() == 0
    slots.close()


def _read(url: str, path: Path, count: int, ready: Any) -> None:
    with Transport(url, options(path)) as transport:
        ready.set()
        came = list(transport.read_many(ByteRange("f1", number, 1) for number in range(count)))
    assert all(isinstance(outcome, RangeBytes) for outcome in came)


@contextmanager
def holding(bucket: Path) -> Iterator[tuple[str, Any]]:
    """A server that holds each answer back until it is told to go on; yields its address and the state."""
    state = SimpleNamespace(changed=Condition(), in_flight=0, peak=0, seen=0, released=0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            first, last = (int(bound) for bound in self.headers["Range"].removeprefix("bytes=").split("-"))
            with state.changed:
                state.in_flight += 1
                state.peak, state.seen = max(state.peak, state.in_flight), state.seen + 1
                number = state.seen
                state.changed.notify_all()
                assert state.changed.wait_for(lambda: state.released >= number, 120)
                state.in_flight -= 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/1000")
            self.send_header("Content-Length", str(last - first + 1))
            self.end_headers()
            self.wfile.write(bytes(last - first + 1))

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", state
        server.shutdown()


@pytest.mark.process
def test_three_processes_have_four_requests_in_flight_however_long_answers_take(bucket: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    with holding(bucket) as (url, state):
        ready = [SPAWN.Event() for _ in range(3)]
        readers = [SPAWN.Process(target=_read, args=(url, path, 6, event)) for event in ready]
        for reader in readers:
            reader.start()
        assert all(event.wait(60) for event in ready)
        for count in range(4, 3 * 6 + 1):
            with state.changed:
                assert state.changed.wait_for(lambda count=count: state.seen >= count, 60)
                assert state.in_flight <= 4
                state.released += 1
                state.changed.notify_all()
        with state.changed:
            state.released += 4
            state.changed.notify_all()
        for reader in readers:
            reader.join(60)
            assert reader.exitcode == 0
        assert (state.seen, state.peak) == (18, 4)


def test_a_second_process_does_not_wait_for_a_share_that_nobody_uses(bucket: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    with FaultServer(bucket) as server, Transport(server.url, options(path)) as one:
        one.read("f1", 0, 1)
        with Transport(server.url, options(path, concurrency=4)) as other:
            slots = Slots(path.with_suffix(".slots") / other.host, 4)
            assert [slots.take() for _ in range(4)] == [0, 1, 2, 3], "an idle process has none"
            slots.close()
            assert other.read("f1", 0, 1).attempts == 1


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
