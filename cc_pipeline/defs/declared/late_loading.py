"""Loads the bodies of assets, ops and ticks when they run: loading the declarations must not load that code."""

from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import Any, Final

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace

#: Threads of a code server hold it while they load modules: Python reports a deadlock if their first imports cross.
LOADING: Final = RLock()


def load_later(place: str) -> Callable[..., Any]:
    """Returns a function that calls the one at ``place`` (``package.module.name``). The module is loaded at the first
    call."""
    module, _, name = place.rpartition(".")

    def call(*arguments: Any) -> Any:
        with LOADING:
            loaded = import_module(module)
        return getattr(loaded, name)(*arguments)

    return call


def body(namespace: HomeNamespace, place: str, config: type[dg.Config] | None = None) -> Callable[..., Any]:
    """Returns the body of an asset or op: it calls the function at ``place`` with the context, the open workspace, the
    home's namespace and the run's ``config``, if there is one."""
    call = load_later(place)

    if config is None:
        return lambda context: call(context, namespace.workspace(context), namespace)
    return lambda context: call(context, namespace.workspace(context), namespace, config(**_op(context).op_config))


def _op(context: Any) -> Any:
    return getattr(context, "op_execution_context", context)


def schema_of(config: type[dg.Config] | None) -> Any:
    """Returns the configuration schema for an asset or op."""
    return config.to_fields_dict() if config is not None else None
