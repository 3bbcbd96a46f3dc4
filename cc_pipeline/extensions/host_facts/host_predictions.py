"""Facts of a site before its captures are located: its predicted size and rank, and the hosts that match a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cc_pipeline.api.lookups import LookupRequest
from cc_pipeline.cli.known_hosts import NoHostFacts
from cc_pipeline.cli.output import notice, warn
from cc_pipeline.commoncrawl.target import GIVEN_KIND
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extensions.host_facts.commands import report_cost
from cc_pipeline.extensions.host_facts.folders import answers_path

if TYPE_CHECKING:
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.workspace.workspace import Workspace

#: Maximum targets with facts; more would hide the answer.
_MAX_TARGETS = 10


def show_predicted(question: LookupRequest, crawl: str, *, ask: bool) -> None:
    """Prints a line of facts about the hosts of each target. Without ``ask``, only stored facts are used, no request is
    sent, and the line says how to ask. If a dataset cannot be asked, prints that and raises nothing, because the
    user asked for captures.
    """
    targets = [target for target in question.targets if target.kind != GIVEN_KIND][:_MAX_TARGETS]
    if not ask and not answers_path(question.workspace.settings).is_dir():
        # no dataset was ever asked here: the modules below need not be loaded
        if targets and crawl == question.crawls[0]:
            _note_unknown(crawl, targets[0])
        return
    from cc_pipeline.extensions.host_facts.host_facts import stored_facts
    from cc_pipeline.extensions.host_facts.host_selection import (
        datasets_for_crawl,
        default_datasets,
        describe_prediction,
        facts_of,
        host_datasets,
    )

    datasets_by_name = datasets_for_crawl(question.workspace, crawl)
    default_asked = host_datasets(datasets_by_name, default_datasets(datasets_by_name))
    for target in targets:
        if ask:
            try:
                facts = facts_of(question.workspace, crawl, target, default_asked)
            except (DataFault, EnvironmentFault) as error:
                reason = f"{error.problem}. {error.advice}" if isinstance(error, EnvironmentFault) else error
                warn(f"{crawl}: size and rank of {target.definition} are not available: {reason}")
                return
            report_cost(crawl, target.definition, facts)
        else:
            facts_in_home = stored_facts(
                question.workspace, crawl, target, [dataset.dataset for dataset in default_asked]
            )
            if facts_in_home is None and crawl != question.crawls[0]:
                return  # the first crawl printed it
            if facts_in_home is None:
                _note_unknown(crawl, target)
                return
            facts = facts_in_home
        notice(f"{crawl}: {target.definition}: {describe_prediction(facts)}")


def _note_unknown(crawl: str, target: Target) -> None:
    notice(f"{crawl}: size and rank of {target.definition} are not known here yet: add --facts")


def choose_hosts(workspace: Workspace, crawl: str, targets: Sequence[Target], where: str) -> tuple[Target, ...]:
    """Returns the parts of ``targets`` on hosts that match in ``crawl``. Prints the cost, and which hosts were left
    out.

    Raises ``UserInputError`` for a filter that cannot be read or names an unknown column, ``NoHostFacts`` if the
    datasets of the filter have no row of the crawl.
    """
    from cc_pipeline.commoncrawl.expressions import parse_filter
    from cc_pipeline.extensions.host_facts.host_selection import choose_hosts, datasets_for_crawl, datasets_for_filter

    condition = parse_filter(where)
    datasets = datasets_for_filter(condition, datasets_for_crawl(workspace, crawl))
    narrowed_targets: dict[str, Target] = {}
    absent_names = {dataset.dataset.name for dataset in datasets}
    for target in targets:
        choice = choose_hosts(workspace, crawl, target, condition, datasets)
        report_cost(crawl, target.definition, choice.facts)
        absent_names &= set(choice.facts.absent)
        undecided_text = (
            f"; {choice.undecided:,} lack a fact of the filter, so they do not match" if choice.undecided else ""
        )
        notice(
            f"{crawl}: {choice.matched:,} of {choice.hosts:,} known hosts of {target.definition} match{undecided_text}"
        )
        if choice.unnameable:
            warn(
                f"{crawl}: {len(choice.unnameable):,} hosts match the filter, but their names are not valid host "
                f"names, so their pages are left out, as of {choice.unnameable[0]}"
            )
        if choice.narrowed_target is not None:
            narrowed_targets[choice.narrowed_target.slug] = choice.narrowed_target
    if datasets and len(absent_names) == len(datasets):
        raise NoHostFacts(
            f"the filter cannot be applied to {crawl}: {', '.join(sorted(absent_names))} has nothing about this crawl",
            "Name a covered crawl (docs/extensions/host_facts.md), or leave out --hosts.",
        )
    return tuple(narrowed_targets.values())
