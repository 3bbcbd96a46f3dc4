"""Data sets from Python; the function takes a home (``cc_pipeline.open``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cc_pipeline.api.facade import public

if TYPE_CHECKING:
    from cc_pipeline.api.export import Export
    from cc_pipeline.api.home import Home


@public
def dataset(
    home: Home,
    out: str | Path,
    targets: str | Sequence[str] = (),
    crawls: str | Sequence[str] = (),
    *,
    languages: str | Sequence[str] = (),
    words: str = "50..100000",
    rules: str = "gopher,c4",
    near: float = 0.8,
    keep_copies: bool = False,
    respect: str = "",
    as_of: Literal["fetch", "latest"] = "fetch",
    known_only: bool = False,
    format: Literal["parquet", "jsonl"] = "parquet",
    creator: str = "",
    url: str = "",
) -> Export:
    """Makes a data set of published main texts: a folder with the texts, a datasheet with the count of each filter, and
    a card. The arguments are those of the command.

    Raises ``UserInputError`` for invalid arguments, ``EnvironmentFault`` if nothing was published or the disk fails.
    """
    from cc_pipeline.api.reporter import use_reporter
    from cc_pipeline.extensions.policies.dataset_export import make_dataset

    with use_reporter(home.reporter):
        return make_dataset(
            home.settings,
            Path(out),
            _as_sequence(targets),
            _as_sequence(crawls),
            languages=_as_sequence(languages),
            words=words,
            rules=rules,
            near=near,
            keep_copies=keep_copies,
            respect=respect,
            as_of=as_of,
            known_only=known_only,
            format=format,
            creator=creator,
            url=url,
        )


def _as_sequence(texts: str | Sequence[str]) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts
