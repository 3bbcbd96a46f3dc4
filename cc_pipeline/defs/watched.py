"""The targets that a home watches: those of its list, and those that its code location names."""

from collections.abc import Iterable

from cc_pipeline.automation.watch_list import WatchedTargets, read_valid_targets
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.lake.target_definitions import read_definitions
from cc_pipeline.workspace.workspace import Workspace


def watched_targets(workspace: Workspace, namespace: HomeNamespace) -> WatchedTargets:
    """Returns all watched targets, each once. Raises ``UserInputError`` for an invalid target of the code location, and
    as :func:`~cc_pipeline.automation.watch_list.read_valid_targets`."""
    watch_list = read_valid_targets(workspace.settings.watch_list_path)
    targets_by_slug = {target.slug: target for target in (*map(parse_target, namespace.targets), *watch_list.targets)}
    return WatchedTargets(tuple(targets_by_slug.values()), watch_list.note)


def define_watched(workspace: Workspace, namespace: HomeNamespace, keys: Iterable[str]) -> None:
    """Stores the definitions of the targets of partitions (``keys``) that only the watch list has yet: a person may add
    a key in the UI before the sensor does."""
    slugs = {key.partition("|")[2] for key in keys}
    undefined = slugs - read_definitions(workspace.lake, sorted(slugs)).keys()
    if undefined:
        watched = watched_targets(workspace, namespace).targets
        workspace.register_targets([target for target in watched if target.slug in undefined])
