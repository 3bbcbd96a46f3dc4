"""What is known of a site before anything of it is located: its predicted size and rank, and which hosts are meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cc_pipeline.api.asking import Question
from cc_pipeline.cli.known_hosts import NothingKnown
from cc_pipeline.cli.output import notice, warn
from cc_pipeline.commoncrawl.target import GIVEN_KIND
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extensions.host_facts.commands import say_cost

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.workspace.workspace import Workspace

#: Targets of which facts are shown; more would bury the answer.
_MOST_SHOWN = 10


def show_predicted(question: Question, crawl: str, *, ask: bool) -> None:
    """Writes a line for each target with what is known of its hosts. Without ``ask`` only what is here already, so that
    no request is sent; then it says how to ask. Where a dataset cannot be asked, it says that, and raises nothing:
    captures are what is asked for."""
    from cc_pipeline.extensions.host_facts.choosing import facts_of, hosts_only, known_for, predicted, usual
    from cc_pipeline.extensions.host_facts.host_facts import facts_at_hand

    known = known_for(question.workspace, crawl)
    asked = hosts_only(known, usual(known))
    for target in [one for one in question.targets if one.kind != GIVEN_KIND][:_MOST_SHOWN]:
        if ask:
            try:
                found = facts_of(question.workspace, crawl, target, asked)
            except (DataFault, EnvironmentFault) as error:
                why = error.what if isinstance(error, EnvironmentFault) else error
                warn(f"{crawl}: how large {target.definition} is, and its rank, cannot be told: {why}")
                return
            say_cost(crawl, target.definition, found)
        else:
            here = facts_at_hand(question.workspace, crawl, target, [one.dataset for one in asked])
            if here is None and crawl != question.crawls[0]:
                return  # it was said of the first crawl
            if here is None:
                notice(f"{crawl}: how large {target.definition} is, and its rank, is not known here yet: add --facts")
                return
            found = here
        notice(f"{crawl}: {target.definition}: {predicted(found)}")


def choose_hosts(workspace: Workspace, crawl: str, targets: Sequence[Target], where: str) -> tuple[Target, ...]:
    """Of ``targets``, what lies on hosts that match in ``crawl``. Writes what that cost and what was left out.

    Raises ``UserInputError`` for a filter that cannot be read or names a column that nobody has, ``NothingKnown`` where
    nothing it names is known of any host of the crawl.
    """
    from cc_pipeline.commoncrawl.expressions import parse_filter
    from cc_pipeline.extensions.host_facts.choosing import choose, known_for, needed_for

    condition = parse_filter(where)
    needed = needed_for(condition, known_for(workspace, crawl))
    left: dict[str, Target] = {}
    silent = {one.dataset.name for one in needed}
    for target in targets:
        one = choose(workspace, crawl, target, condition, needed)
        say_cost(crawl, target.definition, one.facts)
        silent &= set(one.facts.absent)
        unknown = f"; of {one.unknown:,} a fact is missing, so they do not match" if one.unknown else ""
        notice(f"{crawl}: {one.matched:,} of {one.hosts:,} known hosts of {target.definition} match{unknown}")
        if one.unnameable:
            warn(f"{crawl}: {len(one.unnameable):,} hosts that match cannot be looked up: {one.unnameable[0]} …")
        if one.narrowed is not None:
            left[one.narrowed.slug] = one.narrowed
    if needed and len(silent) == len(needed):
        raise NothingKnown(
            f"which hosts of {crawl} match cannot be told: {', '.join(sorted(silent))} has nothing about this crawl",
            "Name a crawl that is covered (docs/extensions/host_facts.md), or go without --hosts.",
        )
    return tuple(left.values())
