"""What extensions know of hosts before anything of them is located: ``--hosts`` of ``run`` and ``plan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extension import collect

if TYPE_CHECKING:
    from cc_pipeline.api.asking import Question
    from cc_pipeline.commoncrawl.target import Target
    from cc_pipeline.workspace.workspace import Workspace


class NothingKnown(EnvironmentFault):
    """What a filter asks for is known for other crawls only."""


class KnownHosts(Protocol):
    """Predicts sizes of targets and chooses hosts by a filter."""

    def show_predicted(self, question: Question, crawl: str, *, ask: bool) -> None:
        """Writes what is known of the targets' hosts; without ``ask`` it sends no request. Raises nothing: captures are
        what is asked for."""

    def choose_hosts(
        self, workspace: Workspace, crawl: str, targets: Sequence[Target], where: str
    ) -> tuple[Target, ...]:
        """The parts of ``targets`` that lie on hosts which match the filter ``where`` in ``crawl``.

        Raises ``UserInputError`` for a filter that cannot be read, ``NothingKnown`` where nothing it names is known of
        any host of the crawl.
        """


def find_known_hosts() -> KnownHosts | None:
    """The first that an extension in use hands in; ``None`` where none does."""
    return next((cast("KnownHosts", each) for own in collect("known_hosts").values() for each in own.values()), None)


def required_known_hosts() -> KnownHosts:
    """The same. Raises ``UserInputError`` where no extension in use knows of hosts."""
    found = find_known_hosts()
    if found is None:
        raise UserInputError(
            "--hosts needs an extension that knows of hosts, and none is in use: cc-pipeline extensions lists them"
        )
    return found
