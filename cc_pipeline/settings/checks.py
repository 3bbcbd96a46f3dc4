"""Which values of settings cannot be used."""

from __future__ import annotations

import math
import re

from cc_pipeline.addresses import scheme_of
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings.buckets import check_endpoint, read_buckets
from cc_pipeline.settings.environment import PREFIX
from cc_pipeline.settings.places import WEB
from cc_pipeline.settings.values import Settings

LOCATORS = ("auto", "parquet", "btree", "zipnum")
EXTRACTORS = ("fast", "auto", "quality")
DIGEST_POLICIES = ("record", "fail")
PUBLISH = ("views", "copy", "none")
ENGINES = ("local", "spark")
#: A host's name or address in brackets, perhaps with a port; ``*`` stands for a part of a label.
_HOST_PATTERN = re.compile(r"(?:[A-Za-z0-9._*-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?")
#: Characters that DuckDB takes for patterns, or that the Delta library refuses, even in quotes.
_NOT_IN_PATHS = frozenset("*?[]{}|^%\\\n")


def checked(settings: Settings) -> Settings:
    for name, value, allowed in (
        ("VIA", settings.via, LOCATORS),
        ("EXTRACTOR", settings.extractor, EXTRACTORS),
        ("DIGEST_POLICY", settings.digest_policy, DIGEST_POLICIES),
        ("PUBLISH", settings.publish, PUBLISH),
        ("ENGINE", settings.engine, ENGINES),
    ):
        if value not in allowed:
            raise UserInputError(f"{PREFIX}{name} is {value!r}; choose one of {', '.join(allowed)}")
    for subset in settings.subsets:
        if subset not in SUBSETS:
            raise UserInputError(f"{PREFIX}SUBSETS names {subset!r}; choose from {', '.join(SUBSETS)}")
    if not settings.subsets:
        raise UserInputError(f"{PREFIX}SUBSETS is empty; choose from {', '.join(SUBSETS)}")
    for name, number in (("RATE", settings.rate), ("CONCURRENCY", settings.concurrency)):
        if number is not None and not 0 < number < math.inf:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {number}")
    if settings.wait is not None and not settings.wait >= 0:
        raise UserInputError(f"{PREFIX}WAIT must be a number of seconds, 0 or more, or inf, not {settings.wait:g}")
    for name, share in (
        ("MAX_UNSETTLED", settings.max_unsettled),
        ("MAX_LOST", settings.max_lost),
        ("MAX_INDEX_GAPS", settings.max_index_gaps),
    ):
        if not 0 <= share <= 1:
            raise UserInputError(f"{PREFIX}{name} must be a share from 0 to 1, not {share:g}")
    for name, count in (
        ("BACKFILL_PER_TICK", settings.backfill_per_tick),
        ("PARTITIONS_PER_RUN", settings.partitions_per_run),
        ("HOSTS", settings.hosts),
    ):
        if count < 1:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {count}")
    for name, amount in (("BACKFILL_HOURS", settings.backfill_hours), ("PUBLISH_EVERY", settings.publish_every)):
        if not 0 < amount < math.inf:
            raise UserInputError(f"{PREFIX}{name} must be a number above 0, not {amount:g}")
    if not all(_HOST_PATTERN.fullmatch(host) for host in settings.redirects):
        # what stands there is not repeated: it may hold a password
        raise UserInputError(f"{PREFIX}REDIRECTS takes names of hosts, such as *.aws.cdn.example, and no addresses")
    if settings.webhook and scheme_of(settings.webhook) not in WEB:
        raise UserInputError(f"{PREFIX}WEBHOOK is no http:// or https:// address")
    for name, endpoint in (("S3_ENDPOINT", settings.s3_endpoint), ("LAKE_ENDPOINT", settings.lake_endpoint)):
        if endpoint:
            check_endpoint(name, endpoint)
    read_buckets(settings.s3_places)
    for name, place in (("HOME", str(settings.home)), ("LAKE", settings.lake)):
        odd = sorted(_NOT_IN_PATHS & set(place))
        if odd and "://" not in place:
            raise UserInputError(
                f"{PREFIX}{name} is {place!r}; tables cannot be stored under a path that has {' '.join(odd)} in it, "
                "choose another"
            )
    return settings
