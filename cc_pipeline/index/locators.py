"""The names of the kinds of index: values of ``--index`` and of ``located_by``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cc_pipeline.advice import option
from cc_pipeline.errors import UserInputError

#: Instead of a kind's name: the lookup chooses.
AUTO: Final = "auto"
#: The columnar index, once harvested: every column.
PARQUET: Final = "parquet"
#: The URL index with time, status, type and more.
ZIPNUM: Final = "zipnum"
#: URL and location only, of CC-MAIN-2012.
BTREE: Final = "btree"
#: The kinds, the most detailed first.
KINDS: Final = (PARQUET, ZIPNUM, BTREE)


def refuse_unknown_kind(via: str, also: Sequence[str] = ()) -> None:
    """Raises ``UserInputError`` where ``via`` is neither ``auto``, nor a kind of index, nor one of ``also``."""
    names = (AUTO, *KINDS)
    if via not in (*names, *also):
        raise UserInputError(f"{option(index=None)} or CC_PIPELINE_INDEX is {via!r}; choose one of {', '.join(names)}")
