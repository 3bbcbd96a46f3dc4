"""Opens a place (a local folder, an HTTP address or an S3 bucket) and gives its raw answers: nothing is hidden."""

from cc_pipeline.stores.answer import Answer, Listed, NoAnswer, S3Options, Span, Store, Timeouts
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.stores.opening import DEFAULT_USER_AGENT, open_store

__all__ = [
    "DEFAULT_USER_AGENT",
    "Answer",
    "Listed",
    "LocalStore",
    "NoAnswer",
    "S3Options",
    "Span",
    "Store",
    "Timeouts",
    "open_store",
]
