"""The settings: one frozen object, built at the start of a command, run or tick, and passed on as a value.

Every setting is declared once, in ``all_settings.py`` or by an extension (``declaration.py``). It is an environment
variable ``CC_PIPELINE_<NAME>``, of an extension ``CC_PIPELINE_<EXTENSION>_<NAME>``, and, where it makes sense, a flag.
``environment_value`` tells whether a variable is set. An extension may read variables with credentials for its workers
itself.
"""

from cc_pipeline.settings.all_settings import PUBLISH, Settings
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.settings.reading import CHOICES, choices_of, environment_value, load_settings
from cc_pipeline.settings.source_addresses import DEFAULT_COLLINFO, DEFAULT_SOURCE, normalise_root

__all__ = [
    "CHOICES",
    "DEFAULT_COLLINFO",
    "DEFAULT_SOURCE",
    "PREFIX",
    "PUBLISH",
    "Settings",
    "choices_of",
    "environment_value",
    "load_settings",
    "normalise_root",
]
