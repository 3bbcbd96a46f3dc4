"""The settings: one frozen object, built where a command, a run or a tick begins, and passed on as a value.

Every setting is an environment variable ``CC_PIPELINE_<NAME>`` and, where it makes sense, a flag of the command line.
Who has to know whether a variable is set asks ``in_environment``. ``extensions/spark/ambient.py`` alone reads variables
itself, for a worker's own credentials.
"""

from cc_pipeline.settings.claim import claim_home, is_home_of, remembered_source
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.settings.places import DEFAULT_COLLINFO, DEFAULT_SOURCE, normalise_root, split_places
from cc_pipeline.settings.reading import (
    DIGEST_POLICIES,
    ENGINES,
    EXTRACTORS,
    PUBLISH,
    in_environment,
    load_settings,
    owners,
)
from cc_pipeline.settings.values import Settings

__all__ = [
    "DEFAULT_COLLINFO",
    "DEFAULT_SOURCE",
    "DIGEST_POLICIES",
    "ENGINES",
    "EXTRACTORS",
    "PREFIX",
    "PUBLISH",
    "Settings",
    "claim_home",
    "in_environment",
    "is_home_of",
    "load_settings",
    "normalise_root",
    "owners",
    "remembered_source",
    "split_places",
]
