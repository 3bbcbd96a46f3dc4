"""Bodies that are loaded when they run: declaring what there is must not load what it takes to make it."""

from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import Any, Final

import dagster as dg

from cc_pipeline.defs.placement import Placement

#: Held by threads of a code server while they load modules: where their first loads cross each other, Python refuses
#: one of them as a deadlock.
LOADING: Final = RLock()


def later(place: str) -> Callable[..., Any]:
    """The function at ``place`` (``package.module.name``), whose module is loaded with its first call."""
    module, _, name = place.rpartition(".")

    def call(*arguments: Any) -> Any:
        with LOADING:
            loaded = import_module(module)
        return getattr(loaded, name)(*arguments)

    return call


def body(namespace: Placement, place: str, config: type[dg.Config] | None = None) -> Callable[..., Any]:
    """What an asset or op does: the function at ``place``, with the context, the open workspace, the home's
    placement and, where there is one, the run's ``config``."""
    call = later(place)

    if config is None:
        return lambda context: call(context, namespace.workspace(context), namespace)
    return lambda context: call(context, namespace.workspace(context), namespace, config(**_op(context).op_config))


def _op(context: Any) -> Any:
    return getattr(context, "op_execution_context", context)


def schema_of(config: type[dg.Config] | None) -> Any:
    """The configuration as an asset or op declares it."""
    return config.to_fields_dict() if config is not None else None
