"""The certificates that requests over TLS trust, parsed once a process: a bundle takes 40 ms."""

from __future__ import annotations

import os
import ssl
from functools import cache

from cc_pipeline.errors import UserInputError

#: OpenSSL itself reads the first two.
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def tls_context() -> ssl.SSLContext:
    """Returns the TLS context of this process: the system's certificates, and those of ``REQUESTS_CA_BUNDLE``, else
    ``CURL_CA_BUNDLE``, a file or a folder.

    Raises ``UserInputError`` if it does not exist or has no certificates.
    """
    return _make_context(tuple(os.environ.get(variable, "").strip() for variable in _VARIABLES))


def check_bundle() -> None:
    """Raises ``UserInputError`` if the certificates that the user named cannot be used."""
    if any(os.environ.get(variable, "").strip() for variable in _VARIABLES[2:]):
        tls_context()


@cache
def _make_context(values: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for variable, bundle in zip(_VARIABLES[2:], values[2:], strict=True):
        if not bundle:
            continue
        if not os.path.exists(bundle):
            raise UserInputError(f"{variable} is {bundle!r}, which is not there; name a file of certificates")
        try:
            context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
        except (OSError, ssl.SSLError) as error:
            raise UserInputError(
                f"{variable} is {bundle!r}, which holds no certificates that can be read: {error}"
            ) from error
        break
    return context
