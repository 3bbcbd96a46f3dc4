"""What a home watches: the targets of its list, and those that its code location names."""

from collections.abc import Iterable

from cc_pipeline.automation.watch_list import Watched, read_what_is_right
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.placement import Placement
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.target_definitions import definitions
from cc_pipeline.workspace.workspace import Workspace


def watched_targets(workspace: Workspace, namespace: Placement) -> Watched:
    """All of them, each once. Raises ``UserInputError`` for one that the code location names and nobody can read."""
    watch_list = read_what_is_right(workspace.settings.watch_list_path, workspace.settings.watch_list_copy)
    targets_by_slug = {target.slug: target for target in (*map(parse_target, namespace.targets), *watch_list.targets)}
    return Watched(tuple(targets_by_slug.values()), watch_list.note)


def define_watched(workspace: Workspace, namespace: Placement, keys: Iterable[str]) -> None:
    """Writes down what the targets of partitions (``keys``) mean, where only the watch list says it yet: a person may
    add a key in the UI before the sensor does."""
    slugs = {key.partition("|")[2] for key in keys}
    undefined = slugs - definitions(workspace.lake, sorted(slugs)).keys()
    if undefined:
        watched = watched_targets(workspace, namespace).targets
        workspace.register_targets([target for target in watched if target.slug in undefined])


def refuse_watched(namespace: Placement, slug: str) -> None:
    """Raises ``UserInputError`` where the code location names the target: it would be made again by itself."""
    matching_texts = [text for text in namespace.targets if parse_target(text).slug == slug]
    if matching_texts:
        raise UserInputError(f"the code location watches {matching_texts[0]!r}; take it out of its targets first")
