"""A bucket far away: nginx whose answers come late, on this machine; or the link a person brings."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ECHO = Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")

NGINX = """
{module}
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; keepalive_timeout 300;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen 127.0.0.1:{port} backlog=4096; root {root};
    location / {{ {delay} }}
    location @file {{ }}
  }}
}}
"""


@contextmanager
def far_server(root: Path, delay: float, link: str | None = None) -> Iterator[tuple[str, str]]:
    """Serves ``root``; gives its address and a description of the distance.

    Without ``link`` every answer of nginx (or, where its echo module is missing, of a small asyncio server) waits
    ``delay`` seconds. ``link`` is a command, run with the folder and the one-way delay in milliseconds, that serves
    the folder over a real delay line: it prints the address and runs until it is killed.
    """
    if link is not None:
        with _child([*link.split(), str(root), f"{delay * 500:g}"], "the link given") as found:
            yield found
    elif shutil.which("nginx") and ECHO.exists():
        with _nginx(root, delay) as url:
            yield url, f"nginx that waits {delay * 1000:g} ms before each answer"
    else:
        arguments = [sys.executable, "-m", "cc_pipeline_tests.faultserver", str(root), "--latency", str(delay)]
        with _child(arguments, f"an asyncio server that waits {delay * 1000:g} ms before each answer") as found:
            yield found


@contextmanager
def _nginx(root: Path, delay: float) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = _free_port()
        module = f"load_module {ECHO};" if delay else ""
        waiting = f"echo_sleep {delay:.3f}; echo_exec @file;" if delay else "try_files $uri =404;"
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(module=module, folder=folder, port=port, root=root.resolve(), delay=waiting))
        process = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(config)], stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}/"
            _wait_for(url)
            yield url
        finally:
            process.terminate()
            process.wait()


@contextmanager
def _child(arguments: list[str], what: str) -> Iterator[tuple[str, str]]:
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline().strip()
        yield (f"http://127.0.0.1:{said}/" if said.isdecimal() else said), what
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing answers at {url}")
