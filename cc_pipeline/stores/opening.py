"""Opens the store of a root that a user named: a folder, a web address or a bucket.

The libraries of a kind of store are loaded when it is first opened: a folder needs neither aiohttp nor botocore, a web
address no botocore.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from cc_pipeline.addresses import NO_ACCESS, Access, redact_address, scheme_of, split_access
from cc_pipeline.errors import UserInputError
from cc_pipeline.stores.answer import S3Options, Store, Timeouts
from cc_pipeline.stores.local import LocalStore

#: Names the project to the operators of the bucket; the command line and Dagster add a contact.
DEFAULT_USER_AGENT = "cc_pipeline/0.1 (Common Crawl extraction pipeline)"

_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


def open_store(
    root: str,
    *,
    user_agent: str = DEFAULT_USER_AGENT,
    timeouts: Timeouts | None = None,
    s3: S3Options | None = None,
    access: Access = NO_ACCESS,
) -> Store:
    """Opens the store of ``root``: a folder's path, ``file://…``, ``http(s)://…`` or ``s3://bucket/prefix``.

    ``access`` is sent to an HTTP store whose address has no credentials. Sends no request yet. Raises
    ``UserInputError`` for any other text.
    """
    scheme = scheme_of(root)
    root, own_access = split_access(root)
    if not scheme:
        if not root:
            raise UserInputError("the address of the source is empty; give a folder, an https:// or an s3:// address")
        return LocalStore(root)
    parts = urlsplit(root)
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise UserInputError(f"{redact_address(root)!r} names another machine; write file:///path")
        return LocalStore(Path(unquote(parts.path)))
    if not parts.netloc and scheme in ("s3", "http", "https"):
        missing = "bucket; write s3://bucket/prefix" if scheme == "s3" else f"host; write {scheme}://host/path"
        raise UserInputError(f"{root!r} has no {missing}")
    if scheme == "s3":
        from cc_pipeline.stores.s3 import S3Store  # noqa: PLC0415
        from cc_pipeline.stores.web import HttpClient  # noqa: PLC0415

        options = _with_endpoint(s3 or S3Options())
        endpoint = options.endpoint or "https://s3.amazonaws.com"
        client = HttpClient(user_agent, timeouts or Timeouts(), system_proxy(endpoint))
        return S3Store(parts.netloc, parts.path.strip("/"), options, client)
    if scheme in ("http", "https"):
        from cc_pipeline.stores.web import HttpClient, HttpStore  # noqa: PLC0415

        client = HttpClient(user_agent, timeouts or Timeouts(), system_proxy(root))
        return HttpStore(root, client, own_access or access)
    raise UserInputError(f"{redact_address(root)!r} is not a folder, file://, http(s):// or s3:// address")


def _with_endpoint(options: S3Options) -> S3Options:
    """Returns ``options`` with the endpoint escaped as it is sent. Raises ``UserInputError`` if it is no address."""
    if not options.endpoint:
        return options
    from cc_pipeline.stores.web import as_sent  # noqa: PLC0415

    endpoint, access = split_access(options.endpoint)
    if scheme_of(endpoint) not in ("http", "https") or not urlsplit(endpoint).netloc or access:
        raise UserInputError(
            f"{redact_address(endpoint)!r} is not an S3 endpoint; write http://host:port or https://host"
        )
    return replace(options, endpoint=as_sent(endpoint).rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether a host name or address (without port) is this machine."""
    if host.lower() in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_be_public(host: str) -> bool:
    """Whether a host is a name (its addresses are checked on connection) or a public address."""
    if is_loopback(host):
        return False
    try:
        return is_public(host)
    except ValueError:
        # a numeric last part makes it an address in an old form: 2130706433, 0x7f.1
        return _NUMBER.fullmatch(host.rpartition(".")[2]) is None


def is_public(address: object) -> bool:
    """Whether a numeric address is reachable from everywhere, and belongs to one host. Raises ``ValueError`` for a
    name."""
    ip_address = ipaddress.ip_address(str(address).partition("%")[0])
    mapped = getattr(ip_address, "ipv4_mapped", None)
    ip_address = ip_address if mapped is None else mapped
    return ip_address.is_global and not ip_address.is_multicast


def system_proxy(url: str) -> str | None:
    """Returns the proxy for an address by the system's settings, read as by curl: ``HTTPS_PROXY`` or ``HTTP_PROXY``,
    else ``ALL_PROXY``, also without a scheme; none for loopback and for hosts in ``NO_PROXY``.

    Raises ``UserInputError`` if it is no address of an HTTP proxy.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if is_loopback(host) or proxy_bypass(f"{host}:{port}") or _is_in_network(host, proxies.get("no", "")):
        return None
    kind = parts.scheme if proxies.get(parts.scheme) else "all"
    written = proxies.get(kind, "").strip()
    return _proxy_address(written, f"{kind}_proxy".upper()) if written else None


def _is_in_network(host: str, no_proxy: str) -> bool:
    """Whether a numeric host is in one of the networks (``10.0.0.0/8``) in ``no_proxy``, which curl and requests
    support and the standard library does not."""
    for written in no_proxy.split(","):
        try:
            if "/" in written and ipaddress.ip_address(host) in ipaddress.ip_network(written.strip(), strict=False):
                return True
        except ValueError:
            continue
    return False


def _proxy_address(written: str, variable: str) -> str:
    address = written if "://" in written else f"http://{written}"
    try:
        parts = urlsplit(address)
        # http:/host:3128 has a host called http and an empty port
        is_usable = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_usable = is_usable and not parts.netloc.endswith(":")
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UserInputError(
            f"{variable} is {redact_address(address)!r}, which is no address of an HTTP proxy; write "
            "http://host:port (SOCKS is not supported), or name the hosts that need none in NO_PROXY"
        )
    return address
