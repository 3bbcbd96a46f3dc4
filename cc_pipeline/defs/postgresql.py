"""Connections to PostgreSQL for Dagster's storage, as a plugin of SQLAlchemy that the database's address names.

``dagster.yaml`` names it with ``params: {plugin: cc_pipeline}``. Dagster's own storage opens a connection for each
statement: a run over 200 partitions of six assets plans 1,200 events, and took a minute and a half to create. It also
gives up after some six seconds without a server, so that a restart of PostgreSQL broke running runs. Engines with this
plugin keep a connection, and wait for a server that restarts.

Source of the interface: SQLAlchemy 2.0, ``CreateEnginePlugin`` and the event ``do_connect``.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from typing import Any, Final

from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import CreateEnginePlugin
from sqlalchemy.pool import NullPool

#: Maximum seconds to wait for a server. A restart with much to recover took 26.
RESTART_SECONDS: Final = 60.0
_TRY_AGAIN_SECONDS: Final = 0.5
#: Idle connections of an engine; an instance of Dagster has three engines. Threads open more if they need them.
_POOL_OPTIONS: Final = {"pool_size": 1, "max_overflow": 30, "pool_recycle": 1_800}
#: Engines of a process with open idle connections: those of two instances. A code server creates an instance for each
#: tick and never closes its engines, which live until Python collects cycles; 40 of them had 96 connections.
_MAX_ENGINES: Final = 6
_LOG: Final = logging.getLogger(__name__)


class KeptConnections(CreateEnginePlugin):
    """Keeps a connection of an engine that would open one for each statement, and waits while a server restarts."""

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        # A webserver's engines keep connections without this plugin.
        if kwargs.get("poolclass") is NullPool:
            del kwargs["poolclass"]
            kwargs.update(_POOL_OPTIONS)
        # Replaces a connection that the server has closed before it is used.
        kwargs["pool_pre_ping"] = True
        self._outage = _Outage(f"{url.host}:{url.port}")

    def update_url(self, url: URL) -> URL:
        """Returns the address unchanged: it has no options of this plugin."""
        return url

    def engine_created(self, engine: Engine) -> None:
        event.listen(engine, "do_connect", self._outage.connect)
        _close_oldest(engine)


_newest: Final[deque[weakref.ref[Engine]]] = deque()
_newest_lock: Final = threading.Lock()


def _close_oldest(engine: Engine) -> None:
    """Closes idle connections of the engine that was created ``_MAX_ENGINES`` before ``engine``. It remains usable."""
    with _newest_lock:
        _newest.append(weakref.ref(engine))
        oldest = _newest.popleft()() if len(_newest) > _MAX_ENGINES else None
    if oldest is not None:
        oldest.dispose()


class _Outage:
    """Connects to a server, and waits if the server answered before. A server that never answered fails at once,
    because the address or the password is wrong. The wait of all threads ends together, and restarts after a
    success.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._was_reachable = False
        self._since: float | None = None

    def connect(self, dialect: Any, _: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        """A connection of the driver. Raises the driver's error if the server does not return."""
        while True:
            try:
                connection = dialect.connect(*arguments, **options)
            except dialect.loaded_dbapi.OperationalError as error:
                if not self._may_wait(error):
                    raise
            else:
                self._was_reachable, self._since = True, None
                return connection
            time.sleep(_TRY_AGAIN_SECONDS)

    def _may_wait(self, error: Exception) -> bool:
        now = time.monotonic()
        with self._lock:
            if not self._was_reachable:
                return False
            if self._since is None:
                self._since = now
                words = " ".join(str(error).split())
                _LOG.warning(
                    "PostgreSQL at %s does not answer (%s): waiting up to %g s", self._server, words, RESTART_SECONDS
                )
            return now - self._since < RESTART_SECONDS
