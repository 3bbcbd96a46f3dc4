"""The webhook: one JSON document, posted once."""

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

from cc_pipeline.addresses import host_of

#: Seconds to wait for an answer.
_TIMEOUT_SECONDS: Final = 10.0


def post_event(address: str, event: Mapping[str, object]) -> str | None:
    """Posts ``event`` as JSON to ``address``; does nothing if it is empty. Returns why it was not accepted, without the
    address, which may contain a secret. Raises nothing, tries once, and waits for at most ``_TIMEOUT_SECONDS``."""
    if not address:
        return None
    problems: list[str | None] = []
    # the timeout of a connection restarts with every byte, and resolving a host name has none
    thread = threading.Thread(
        target=lambda: problems.append(_post(address, event)), name="cc-pipeline-webhook", daemon=True
    )
    thread.start()
    thread.join(_TIMEOUT_SECONDS)
    return problems[0] if problems else f"{host_of(address)} did not answer in {_TIMEOUT_SECONDS:g} seconds"


def _post(address: str, event: Mapping[str, object]) -> str | None:
    host = host_of(address)
    try:
        request = urllib.request.Request(
            address, json.dumps(event).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        # no handler follows a redirect: the person chose the address, and no other receives the document
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.HTTPErrorProcessor,
        ):
            opener.add_handler(handler())
        with opener.open(request, timeout=_TIMEOUT_SECONDS):
            return None
    except urllib.error.HTTPError as answer:
        answer.close()
        return f"{host} answered {answer.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{host} could not be reached ({type(error).__name__})"
