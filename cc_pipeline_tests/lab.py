"""Real host names on this machine: a network namespace in which they are servers of ours, with TLS.

    with Lab(folder, {"data.commoncrawl.org": Site(bucket, CLOUDFRONT)}) as lab:
        lab.run(["cc-pipeline", "crawls"], environment)

Commands that run in it reach these hosts and no others: the namespace has a loopback interface, an ``/etc/hosts`` and
certificates of its own, and a proxy (``PROXY``) for those that want one. It needs Linux, util-linux, and user
namespaces or root; ``why_no_lab`` says what is lacking.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from werkzeug.serving import make_ssl_devcert

from cc_pipeline_tests.faultserver import FaultServer, Hit, read_hits
from cc_pipeline_tests.frontmanners import Manners

#: Common Crawl's front, and its index server.
DATA, INDEX = "data.commoncrawl.org", "index.commoncrawl.org"
#: The proxy of each lab; ``Lab.hits`` knows its requests by this name.
PROXY = "127.0.0.1:3128"
_REPOSITORY = Path(__file__).resolve().parents[1]
_UNSHARE = ("unshare", "--map-root-user", "--net", "--mount")
#: ``struct ifreq`` as ``ioctl`` takes it: a name, flags, and what is not used.
_IFREQ, _GET_FLAGS, _SET_FLAGS, _UP = "16sh22x", 0x8913, 0x8914, 1


@dataclass(frozen=True, slots=True)
class Site:
    """The folder that a host serves, and how it answers."""

    root: Path
    manners: Manners = field(default_factory=Manners)


@cache
def why_no_lab() -> str:
    """The reason why no namespace can be made here; empty where one can."""
    if missing := [program for program in ("unshare", "nsenter", "mount") if shutil.which(program) is None]:
        return f"no {' and no '.join(missing)} here"
    tried = subprocess.run([*_UNSHARE, "mount", "--bind", "/etc/hosts", "/etc/hosts"], capture_output=True, check=False)
    return f"no namespace can be made here: {tried.stderr.decode().strip()}" if tried.returncode else ""


class Lab:
    """A namespace with ``sites`` by host name, for as long as the context lasts. ``folder`` keeps its files."""

    def __init__(self, folder: Path, sites: Mapping[str, Site]) -> None:
        self._folder, self._sites = folder.resolve(), dict(sites)
        self._environment = {
            "SSL_CERT_FILE": str(self._folder / "roots.pem"), "XDG_STATE_HOME": str(self._folder / "state")
        }  # fmt: skip

    def __enter__(self) -> Lab:
        self._folder.mkdir(parents=True, exist_ok=True)
        described = {host: {**asdict(site), "root": str(site.root.resolve())} for host, site in self._sites.items()}
        (self._folder / "sites.json").write_text(json.dumps(described))
        for host in self._sites:
            make_ssl_devcert(str(self._folder / host), cn=host)
        certificates = [(self._folder / f"{host}.crt").read_text() for host in self._sites]
        (self._folder / "roots.pem").write_text("".join(certificates))
        self._servers = subprocess.Popen(
            [*_UNSHARE, sys.executable, "-m", "cc_pipeline_tests.lab", str(self._folder)],
            cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._servers.stdout is not None
        if self._servers.stdout.readline() != b"ready\n":
            self.__exit__()
            raise RuntimeError("the servers of the lab did not start")
        return self

    def __exit__(self, *_: object) -> None:
        # its servers end when nobody holds the other end any more
        self._servers.communicate()

    def start(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """A command in the namespace, which trusts the sites' certificates; its output in pipes, nothing to read. A
        user's state, as the budget that homes share, is kept in the lab."""
        inside = ["nsenter", f"--target={self._servers.pid}", "--user", "--net", "--mount", "--preserve-credentials"]
        return subprocess.Popen(
            [*inside, *map(str, command)], env={**environment, **self._environment}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """The same, when it has ended."""
        process = self.start(command, environment)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def hits(self, host: str) -> list[Hit]:
        """The requests that a host has had."""
        return read_hits(self._folder / f"{host}.log")


@contextmanager
def common_crawl_lab(bucket: Path, folder: Path, manners: Manners) -> Iterator[Lab]:
    """A lab in which Common Crawl has this bucket. Its index server gives the bucket's list of crawls and nothing else.
    Raises ``FileExistsError`` where ``folder`` is one of before."""
    index = folder / "index"
    index.mkdir(parents=True)
    (index / "collinfo.json").write_bytes((bucket / "collinfo.json").read_bytes())
    with Lab(folder, {DATA: Site(bucket, manners), INDEX: Site(index)}) as lab:
        yield lab


def main(folder: Path) -> None:
    """Serves the sites of a lab in the namespace of this process, until standard input ends."""
    sites = json.loads((folder / "sites.json").read_text())
    addresses = {host: f"127.0.0.{number}" for number, host in enumerate(sites, start=2)}
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {host}\n" for host, address in addresses.items()))
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
    _bring_up_loopback()
    with ExitStack() as stack:
        for host, address in addresses.items():
            stack.enter_context(_serve(folder, host, address, sites[host]))
        stack.enter_context(FaultServer(folder, port=int(PROXY.partition(":")[2]), log=folder / f"{PROXY}.log"))
        print("ready", flush=True)
        sys.stdin.read()


@contextmanager
def _serve(folder: Path, host: str, address: str, site: dict[str, Any]) -> Iterator[None]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / f"{host}.crt", folder / f"{host}.key")
    manners, log = Manners.from_json(site["manners"]), folder / f"{host}.log"
    with FaultServer(Path(site["root"]), manners=manners, address=address, port=443, tls=tls, log=log):
        yield


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack(_IFREQ, b"lo", 0)
        flags = struct.unpack(_IFREQ, fcntl.ioctl(control, _GET_FLAGS, request))[1]
        fcntl.ioctl(control, _SET_FLAGS, struct.pack(_IFREQ, b"lo", flags | _UP))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
