"""The kinds of index, each declared once. Heavy imports wait until a kind is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cc_pipeline.errors import UserInputError

if TYPE_CHECKING:
    from cc_pipeline.index.opening import IndexSearch, OpenIndex

#: Instead of a kind's name: the lookup chooses.
AUTO: Final = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind:
    """A kind of index, as lookups use it.

    ``name`` is the value of ``--index`` and of ``located_by``. ``summary`` is a line for users. ``find`` returns how to
    open the index of a crawl, in the home or at the source, or ``None``; it raises ``EnvironmentFault`` if the source
    does not answer.
    """

    name: str
    summary: str
    find: Callable[[IndexSearch], OpenIndex | None]


def _parquet(sought: IndexSearch) -> OpenIndex | None:
    from cc_pipeline.index.opening import find_columnar

    return find_columnar(sought)


def _zipnum(sought: IndexSearch) -> OpenIndex | None:
    from cc_pipeline.index.opening import find_zipnum

    return find_zipnum(sought)


def _btree(sought: IndexSearch) -> OpenIndex | None:
    from cc_pipeline.index.opening import find_btree

    return find_btree(sought)


PARQUET: Final = IndexKind(name="parquet", summary="the columnar index, once harvested: every column", find=_parquet)
ZIPNUM: Final = IndexKind(name="zipnum", summary="the URL index with time, status, type and more", find=_zipnum)
BTREE: Final = IndexKind(name="btree", summary="URL and location only, of CC-MAIN-2012", find=_btree)
#: The kinds by name, the most detailed first.
KINDS: Final[Mapping[str, IndexKind]] = {kind.name: kind for kind in (PARQUET, ZIPNUM, BTREE)}


def refuse_unknown_kind(via: str, also: Sequence[str] = ()) -> None:
    """Raises ``UserInputError`` where ``via`` is neither ``auto``, nor a kind of index, nor one of ``also``."""
    names = (AUTO, *KINDS)
    if via not in (*names, *also):
        raise UserInputError(f"--index or CC_PIPELINE_INDEX is {via!r}; choose one of {', '.join(names)}")
