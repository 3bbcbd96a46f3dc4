"""What a home watches: the targets of its list, and those that its code location names."""

from collections.abc import Iterable

from cc_pipeline.automation.watch_list import Watched, read_what_is_right
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.placement import Placement
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.target_definitions import definitions
from cc_pipeline.workspace.workspace import Workspace


def watched_targets(workspace: Workspace, at: Placement) -> Watched:
    """All of them, each once. Raises ``UserInputError`` for one that the code location names and nobody can read."""
    listed = read_what_is_right(workspace.settings.watch_list_path, workspace.settings.watch_list_copy)
    found = {one.slug: one for one in (*map(parse_target, at.targets), *listed.targets)}
    return Watched(tuple(found.values()), listed.note)


def define_watched(workspace: Workspace, at: Placement, keys: Iterable[str]) -> None:
    """Writes down what the targets of partitions (``keys``) mean, where only the watch list says it yet: a person may
    add a key in the UI before the sensor does."""
    slugs = {key.partition("|")[2] for key in keys}
    unknown = slugs - definitions(workspace.lake, sorted(slugs)).keys()
    if unknown:
        watched = watched_targets(workspace, at).targets
        workspace.register_targets([target for target in watched if target.slug in unknown])


def refuse_watched(at: Placement, slug: str) -> None:
    """Raises ``UserInputError`` where the code location names the target: it would be made again by itself."""
    named = [text for text in at.targets if parse_target(text).slug == slug]
    if named:
        raise UserInputError(f"the code location watches {named[0]!r}; take it out of its targets first")
