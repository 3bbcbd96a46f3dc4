"""Settings as texts, for a process that has neither this one's environment nor its home."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from cc_pipeline.addresses import Access
from cc_pipeline.settings.values import Settings

#: What belongs to one machine, what nobody else is to see, and what the text of the source says.
_KEPT: Final = frozenset({"home", "webhook", "mirrors", "mirror_access"})


def as_texts(settings: Settings) -> dict[str, str]:
    """What each variable says (by its name without the prefix) so that ``load_settings`` reads the same values.

    Without the home, which is a place of this machine, and without whatever lets somebody in: who needs that has it
    from the environment or a role of its own. An unset value is an empty text, so that none is read in its place.
    """
    values = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in _KEPT}
    values["source"] = settings.source_text
    return {name.upper(): _text(value) for name, value in values.items() if not isinstance(value, Access)}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)
