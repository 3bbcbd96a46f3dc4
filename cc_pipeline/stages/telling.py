"""Telling somebody outside that something failed: one JSON document to the address of ``CC_PIPELINE_WEBHOOK``."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Final

from cc_pipeline.addresses import host_of

#: Seconds until a listener that does not answer is left alone.
_PATIENCE: Final = 10.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The address is the person's own choice; no other place gets what is told."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def tell(address: str, what: Mapping[str, object]) -> str | None:
    """Posts ``what`` as JSON to ``address``; nothing without one. Gives why it was not taken, without the address,
    which may hold a secret of its own. Raises nothing, and asks once.
    """
    if not address:
        return None
    host = host_of(address)
    try:
        request = urllib.request.Request(
            address, json.dumps(what).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_PATIENCE):
            return None
    except urllib.error.HTTPError as answer:
        answer.close()
        return f"{host} answered {answer.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{host} could not be told ({type(error).__name__})"
