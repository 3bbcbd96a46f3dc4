"""Kinds of index: each is declared once, here or by an extension. Nothing heavy is imported before one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.errors import UserInputError
from cc_pipeline.extension import collect, refuse

if TYPE_CHECKING:
    from cc_pipeline.index.opening import Opened, Sought

#: In the place of a kind's name: the look-up chooses.
AUTO: Final = "auto"


def _unknown(home: Path, crawl: str, subset: str) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKind:
    """A kind of index, and all that look-ups have to know of it.

    ``name`` is what ``--via`` takes and what ``located_by`` says. ``summary`` is a line for people. ``find`` says
    whether there is one of a crawl, in the home or at the source, and how it is opened; it raises ``EnvironmentFault``
    where the source does not say. ``by_itself``: whether ``auto`` may choose it, which goes by the price; one that
    ``is_bare`` tells no more of a capture than its URL and place, and is chosen only where there is nothing else.
    ``version`` names the content of the index of a crawl and subset as the files in the home tell it, without asking
    anybody (empty: they do not); what was located by another version is due again. ``way`` is the command that makes
    the index of a crawl in a home, where there is one.
    """

    name: str
    summary: str
    find: Callable[[Sought], Opened | None]
    by_itself: bool = False
    is_bare: bool = False
    version: Callable[[Path, str, str], str] = _unknown
    way: Callable[[str], str] | None = None


def _parquet(sought: Sought) -> Opened | None:
    from cc_pipeline.index.opening import find_columnar

    return find_columnar(sought)


def _zipnum(sought: Sought) -> Opened | None:
    from cc_pipeline.index.opening import find_zipnum

    return find_zipnum(sought)


def _btree(sought: Sought) -> Opened | None:
    from cc_pipeline.index.opening import find_btree

    return find_btree(sought)


def _btree_version(home: Path, crawl: str, subset: str) -> str:
    from cc_pipeline.index.opening import btree_version

    return btree_version(home, crawl)


def btree_way(crawl: str) -> str:
    """The command that builds a B-tree of a crawl in a home."""
    arcs = " --arcs LIST" if crawl in ARC_CRAWLS else ""
    return f"cc-pipeline index build --btree --crawl {crawl}{arcs}"


PARQUET: Final = IndexKind(
    name="parquet", summary="the columnar index, once harvested: every column", find=_parquet, by_itself=True
)
ZIPNUM: Final = IndexKind(
    name="zipnum", summary="the URL index with time, status, type and more", find=_zipnum, by_itself=True
)
BTREE: Final = IndexKind(
    name="btree",
    summary="URL and place alone: of CC-MAIN-2012, and of any other crawl once built",
    find=_btree,
    by_itself=True,
    is_bare=True,
    version=_btree_version,
    way=btree_way,
)
#: The kinds of the core, the one that tells most first.
CORE_KINDS: Final = (PARQUET, ZIPNUM, BTREE)


def index_kinds() -> Mapping[str, IndexKind]:
    """All kinds by name, the one that tells most first, then those of extensions. An extension with a name that is
    taken is refused."""
    kinds_by_name = {kind.name: kind for kind in CORE_KINDS}
    for extension, kinds in collect("locators").items():
        if invalid_kinds := [kind for kind in kinds if not isinstance(kind, IndexKind)]:
            refuse(extension, f"locators: {invalid_kinds[0]!r} is no IndexKind")
        elif name_clashes := sorted({AUTO, *kinds_by_name} & {kind.name for kind in kinds}):
            refuse(extension, f"locators: the name {', '.join(name_clashes)} is taken")
        elif len({kind.name for kind in kinds}) < len(kinds):
            refuse(extension, "locators: two of its kinds have the same name")
        else:
            kinds_by_name |= {kind.name: kind for kind in kinds}
    return kinds_by_name


def refuse_unknown_kind(via: str, also: Sequence[str] = ()) -> None:
    """Raises ``UserInputError`` where ``via`` is neither ``auto``, nor a kind of index, nor one of ``also``."""
    names = (AUTO, *index_kinds())
    if via not in (*names, *also):
        raise UserInputError(f"--via or CC_PIPELINE_VIA is {via!r}; choose one of {', '.join(names)}")
