"""Opens the store of a place that a person named: a folder, a web address or a bucket.

The libraries of a kind of place are loaded when such a place is first opened: a folder needs neither aiohttp nor
botocore, a web address no botocore.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from cc_pipeline.addresses import NO_ACCESS, Access, scheme_of, shown, split_access
from cc_pipeline.errors import UserInputError
from cc_pipeline.stores.answer import S3Options, Store, Timeouts
from cc_pipeline.stores.local import LocalStore

#: Names the project to the people who run the bucket; front doors add a contact.
DEFAULT_USER_AGENT = "cc_pipeline/0.1 (Common Crawl extraction pipeline)"


def open_store(
    root: str,
    *,
    user_agent: str = DEFAULT_USER_AGENT,
    timeouts: Timeouts | None = None,
    s3: S3Options | None = None,
    access: Access = NO_ACCESS,
) -> Store:
    """The store of ``root``: a folder's path, ``file://…``, ``http(s)://…`` or ``s3://bucket/prefix``.

    ``access`` is sent to an HTTP place whose address has no credentials of its own. This sends no request yet. Raises
    ``UserInputError`` for anything else.
    """
    scheme = scheme_of(root)
    root, own = split_access(root)
    if not scheme:
        if not root:
            raise UserInputError("the place to read from is empty; give a folder, an https:// or an s3:// address")
        return LocalStore(root)
    parts = urlsplit(root)
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise UserInputError(f"{shown(root)!r} names another machine; write file:///path")
        return LocalStore(Path(unquote(parts.path)))
    if not parts.netloc:
        raise UserInputError(f"{root!r} names no host or bucket")
    if scheme == "s3":
        from cc_pipeline.stores.s3 import S3Store  # noqa: PLC0415
        from cc_pipeline.stores.web import HttpClient  # noqa: PLC0415

        options = _with_endpoint(s3 or S3Options())
        asked = options.endpoint or "https://s3.amazonaws.com"
        client = HttpClient(user_agent, timeouts or Timeouts(), system_proxy(asked))
        return S3Store(parts.netloc, unquote(parts.path).strip("/"), options, client)
    if scheme in ("http", "https"):
        from cc_pipeline.stores.web import HttpClient, HttpStore  # noqa: PLC0415

        return HttpStore(root, HttpClient(user_agent, timeouts or Timeouts(), system_proxy(root)), own or access)
    raise UserInputError(f"{shown(root)!r} is not a folder, file://, http(s):// or s3:// address")


def _with_endpoint(options: S3Options) -> S3Options:
    """``options`` with the endpoint escaped as it is sent. Raises ``UserInputError`` when it is not an address."""
    if not options.endpoint:
        return options
    from cc_pipeline.stores.web import as_sent  # noqa: PLC0415

    endpoint, access = split_access(options.endpoint)
    if scheme_of(endpoint) not in ("http", "https") or not urlsplit(endpoint).netloc or access:
        raise UserInputError(f"{shown(endpoint)!r} is not an S3 endpoint; write http://host:port or https://host")
    return replace(options, endpoint=as_sent(endpoint).rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether a host name or address (without port) is this machine."""
    if host.lower() in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def system_proxy(url: str) -> str | None:
    """The proxy that the system's settings (the usual variables) give for an address; none for loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)
