"""Addresses: their hosts, their form without credentials, and the credentials.

Credentials stand in an address as userinfo (``https://user:password@host/``) or as a query (a presigned one, or
``?token=…``). No list says which fields of a query are secret, so the whole query counts as secret.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from cc_pipeline.errors import UserInputError

_WEB: Final = frozenset({"http", "https"})
_SCHEMES: Final = _WEB | {"s3"}
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}://[^\s'\"<>]+")
#: Characters of a query that are not escaped: all printable ASCII that does not end a request's target.
_QUERY: Final = "%/?:@!$&'()*+,;=-._~[]|{}^`\\\""
_HIDDEN: Final = "…"


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials: ``user`` and ``password`` for Basic authorization, a ``query`` that is sent with each request.

    Its text shows none of them.
    """

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    query: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.user or self.password or self.query)

    @property
    def headers(self) -> dict[str, str]:
        """The header that a request carries: ``Authorization``, or none."""
        if not (self.user or self.password):
            return {}
        pair = f"{self.user}:{self.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}

    @property
    def suffix(self) -> str:
        """The text that is appended to an escaped address: a question mark and the query as it was given."""
        return f"?{quote(self.query, safe=_QUERY)}" if self.query else ""


NO_ACCESS: Final = Access()


def split_access(address: str) -> tuple[str, Access]:
    """Returns an address without credentials, and the credentials. The path of a folder is returned unchanged.

    Raises ``UserInputError`` for an ambiguous address. Its message does not repeat the address.
    """
    if scheme_of(address) not in _SCHEMES:
        return address, NO_ACCESS
    parts = _parts(address)
    if parts is None or parts.fragment:
        raise UserInputError(
            f"the {scheme_of(address)}:// address cannot be read: its host or port is invalid, or it is ambiguous. "
            "In a user, password or path write / as %2F, ? as %3F, # as %23 and @ as %40"
        )
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    access = Access(unquote(user), unquote(password), parts.query)
    if access and parts.scheme not in _WEB:
        raise UserInputError(
            f"{redact_address(address)} must not contain credentials; log in with the AWS tools, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return _bare(parts), access


def redact_address(address: str) -> str:
    """Returns an address without userinfo, query and fragment, fit to be printed and stored. Never raises.

    A path is returned unchanged; of an ambiguous address, only the scheme is left.
    """
    if "://" not in address:
        scheme = address.partition(":")[0].lower()
        return f"{scheme}:{_HIDDEN}" if ":" in address and scheme in _SCHEMES else address
    parts = _parts(address)
    return f"{address.partition('://')[0].lower()}://{_HIDDEN}" if parts is None else _bare(parts)


def redact_addresses(text: str) -> str:
    """Returns a text with each address in it replaced as by :func:`redact_address`."""
    return _ADDRESS.sub(lambda match: redact_address(match.group()), text)


def holds_access(address: str) -> bool:
    """Whether an address that is stored somewhere has userinfo or a query, or may have."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return True
    return parts.scheme in _SCHEMES and ("@" in parts.netloc or bool(parts.query))


def host_of(address: str) -> str:
    """Returns the host (or bucket) of an address in lower case; empty for a path and for other texts."""
    parts = _parts(address) if "://" in address else None
    return (parts.hostname or "").rstrip(".") if parts is not None else ""


def scheme_of(address: str) -> str:
    """Returns the scheme of an address in lower case; empty for a path."""
    return address.partition("://")[0].lower() if "://" in address else ""


def _parts(address: str) -> SplitResult | None:
    """Splits an address; ``None`` if host and secrets are ambiguous, e.g. for a ``/`` within a password."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    remainder = parts.path + parts.query + parts.fragment
    return None if parts.scheme in _WEB and "@" in remainder else parts


def _bare(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
