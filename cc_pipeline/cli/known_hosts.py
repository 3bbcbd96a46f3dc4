"""Extensions that know facts of hosts before captures are located: ``--hosts`` of ``run`` and ``plan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extension import collect

if TYPE_CHECKING:
    from cc_pipeline.api.lookups import LookupRequest
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.workspace.workspace import Workspace


class NoHostFacts(EnvironmentFault):
    """The facts that a filter needs are known for other crawls only."""


class KnownHosts(Protocol):
    """Predicts sizes of targets and chooses hosts by a filter."""

    def show_predicted(self, question: LookupRequest, crawl: str, *, ask: bool) -> None:
        """Prints what is known of the targets' hosts. Without ``ask`` it sends no requests. It raises nothing: the
        command is about captures."""

    def choose_hosts(
        self, workspace: Workspace, crawl: str, targets: Sequence[Target], where: str
    ) -> tuple[Target, ...]:
        """Returns the parts of ``targets`` on hosts that match the filter ``where`` in ``crawl``.

        Raises ``UserInputError`` for an invalid filter, ``NoHostFacts`` if its facts are known of no host of the
        crawl.
        """


def find_known_hosts() -> KnownHosts | None:
    """Returns the first implementation of the extensions in use; ``None`` without one."""
    return next(
        (
            cast("KnownHosts", known_hosts)
            for named_values in collect("known_hosts").values()
            for known_hosts in named_values.values()
        ),
        None,
    )


def require_known_hosts() -> KnownHosts:
    """Returns the same. Raises ``UserInputError`` if no extension in use knows of hosts."""
    known_hosts = find_known_hosts()
    if known_hosts is None:
        raise UserInputError(
            "--hosts needs an extension with facts of hosts, and none is in use; to list extensions: "
            "cc-pipeline extensions"
        )
    return known_hosts
