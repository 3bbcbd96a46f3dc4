"""Facts of a site before its captures are located: its predicted size and rank, and the hosts that match a filter."""

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

#: Maximum targets with facts; more would hide the answer.
_MOST_SHOWN = 10


def show_predicted(question: Question, crawl: str, *, ask: bool) -> None:
    """Prints a line of facts about the hosts of each target. Without ``ask``, only stored facts are used, no request is
    sent, and the line says how to ask. If a dataset cannot be asked, prints that and raises nothing, because the
    user asked for captures.
    """
    from cc_pipeline.extensions.host_facts.choosing import facts_of, hosts_only, known_for, predicted, usual
    from cc_pipeline.extensions.host_facts.host_facts import facts_at_hand

    datasets_by_name = known_for(question.workspace, crawl)
    default_asked = hosts_only(datasets_by_name, usual(datasets_by_name))
    for target in [target_ for target_ in question.targets if target_.kind != GIVEN_KIND][:_MOST_SHOWN]:
        if ask:
            try:
                facts = facts_of(question.workspace, crawl, target, default_asked)
            except (DataFault, EnvironmentFault) as error:
                reason = error.what if isinstance(error, EnvironmentFault) else error
                warn(f"{crawl}: size and rank of {target.definition} are not available: {reason}")
                return
            say_cost(crawl, target.definition, facts)
        else:
            facts_in_home = facts_at_hand(
                question.workspace, crawl, target, [dataset.dataset for dataset in default_asked]
            )
            if facts_in_home is None and crawl != question.crawls[0]:
                return  # the first crawl printed it
            if facts_in_home is None:
                notice(f"{crawl}: size and rank of {target.definition} are not known here yet: add --facts")
                return
            facts = facts_in_home
        notice(f"{crawl}: {target.definition}: {predicted(facts)}")


def choose_hosts(workspace: Workspace, crawl: str, targets: Sequence[Target], where: str) -> tuple[Target, ...]:
    """Returns the parts of ``targets`` on hosts that match in ``crawl``. Prints the cost, and which hosts were left
    out.

    Raises ``UserInputError`` for a filter that cannot be read or names an unknown column, ``NothingKnown`` if the
    datasets of the filter have no row of the crawl.
    """
    from cc_pipeline.commoncrawl.expressions import parse_filter
    from cc_pipeline.extensions.host_facts.choosing import choose, known_for, needed_for

    condition = parse_filter(where)
    datasets = needed_for(condition, known_for(workspace, crawl))
    narrowed_targets: dict[str, Target] = {}
    absent_names = {dataset.dataset.name for dataset in datasets}
    for target in targets:
        choice = choose(workspace, crawl, target, condition, datasets)
        say_cost(crawl, target.definition, choice.facts)
        absent_names &= set(choice.facts.absent)
        undecided_text = (
            f"; {choice.unknown:,} lack a fact of the filter, so they do not match" if choice.unknown else ""
        )
        notice(
            f"{crawl}: {choice.matched:,} of {choice.hosts:,} known hosts of {target.definition} match{undecided_text}"
        )
        if choice.unnameable:
            warn(f"{crawl}: {len(choice.unnameable):,} hosts that match cannot be looked up: {choice.unnameable[0]} …")
        if choice.narrowed is not None:
            narrowed_targets[choice.narrowed.slug] = choice.narrowed
    if datasets and len(absent_names) == len(datasets):
        raise NothingKnown(
            f"the filter cannot be applied to {crawl}: {', '.join(sorted(absent_names))} has nothing about this crawl",
            "Name a covered crawl (docs/extensions/host_facts.md), or leave out --hosts.",
        )
    return tuple(narrowed_targets.values())
