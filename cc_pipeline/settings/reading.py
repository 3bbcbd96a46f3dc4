"""Reads the settings from flags, the environment and what a home remembers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cc_pipeline.addresses import split_access
from cc_pipeline.home import HomeNote, NoteUnreadable, read_note
from cc_pipeline.settings.access import let_in, own_access
from cc_pipeline.settings.checks import checked
from cc_pipeline.settings.environment import number_in, text_in, words_in, yes_in
from cc_pipeline.settings.places import DEFAULT_COLLINFO, DEFAULT_SOURCE, normalise_root, split_places
from cc_pipeline.settings.values import Settings


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from the environment, with ``overrides`` (``None`` values are ignored) on top.

    What rows depend on (``home.CHOICES``) belongs to the home once it was used: the environment does not change it.
    Without an explicit source the places the home remembers are used, else Common Crawl's public address. Credentials
    come from the address, from ``CC_PIPELINE_SOURCE_USER``, ``_PASSWORD`` and ``_QUERY`` for the one host that these
    are for, or from netrc, in this order. Raises ``UserInputError`` naming the variable for values that cannot be used,
    ``EnvironmentFault`` for a netrc file that cannot be read, and where nothing says whose tables the home holds.
    """
    env = os.environ if environ is None else environ
    given = {key: value for key, value in overrides.items() if value is not None}
    home = Path(given.pop("home", None) or text_in(env, "HOME") or "data").expanduser().resolve()
    said = text_in(env, "SOURCE")
    named = given.pop("source", None) or said
    note = _note_of(home)
    # homes of before may hold the credentials they were first used with, and go on working with them
    noted = note.places if note is not None else ()
    texts = split_places(str(named)) if named else noted or (DEFAULT_SOURCE,)
    own = own_access(texts)
    source, *mirrors = own
    lake = given.pop("lake", None) or text_in(env, "LAKE") or str(home / "lake")
    collinfo = given.pop("collinfo", None) or text_in(env, "COLLINFO")
    settings = Settings(source, home, normalise_root(str(lake)), "", mirrors=tuple(mirrors))
    from_env: dict[str, Any] = {
        "contact": text_in(env, "CONTACT"),
        "redirects": words_in(env, "REDIRECTS"),
        "subsets": words_in(env, "SUBSETS"),
        "via": text_in(env, "VIA"),
        "extractor": text_in(env, "EXTRACTOR"),
        "markdown": yes_in(env, "MARKDOWN"),
        "digest_policy": text_in(env, "DIGEST_POLICY"),
        "publish": text_in(env, "PUBLISH"),
        "engine": text_in(env, "ENGINE"),
        "spark_master": text_in(env, "SPARK_MASTER"),
        "spark_workers": number_in(env, "SPARK_WORKERS", int),
        "hosts": number_in(env, "HOSTS", int),
        "crawls": words_in(env, "CRAWLS"),
        "page_indexes": yes_in(env, "PAGE_INDEXES"),
        "backfill_per_tick": number_in(env, "BACKFILL_PER_TICK", int),
        "backfill_hours": number_in(env, "BACKFILL_HOURS", float),
        "partitions_per_run": number_in(env, "PARTITIONS_PER_RUN", int),
        "publish_every": number_in(env, "PUBLISH_EVERY", float),
        "webhook": text_in(env, "WEBHOOK"),
        "rate": number_in(env, "RATE", float),
        "wait": number_in(env, "WAIT", float),
        "concurrency": number_in(env, "CONCURRENCY", int),
        "max_bytes": number_in(env, "MAX_BYTES", int),
        "max_requests": number_in(env, "MAX_REQUESTS", int),
        "max_unsettled": number_in(env, "MAX_UNSETTLED", float),
        "max_lost": number_in(env, "MAX_LOST", float),
        "accept_losses": words_in(env, "ACCEPT_LOSSES"),
        "max_index_gaps": number_in(env, "MAX_INDEX_GAPS", float),
        "workers": number_in(env, "WORKERS", int),
        "s3_endpoint": text_in(env, "S3_ENDPOINT"),
        "s3_region": text_in(env, "S3_REGION"),
        "s3_anonymous": yes_in(env, "S3_ANONYMOUS"),
        "s3_places": words_in(env, "S3_PLACES"),
        "lake_endpoint": text_in(env, "LAKE_ENDPOINT"),
    }
    from_env |= note.chosen if note is not None else {}
    settings = replace(settings, **{key: value for key, value in from_env.items() if value is not None})
    settings = checked(replace(settings, **given))
    collinfo = str(collinfo or (DEFAULT_COLLINFO if settings.is_common_crawl else f"{source}/collinfo.json"))
    address, list_access = split_access(collinfo)
    return let_in(replace(settings, collinfo=address), env, own, list_access, (*noted, *split_places(said or "")))


def _note_of(home: Path) -> HomeNote | None:
    """The note of a home. One of somebody else is private, and what is published there can be read all the same."""
    try:
        return read_note(home)
    except NoteUnreadable:
        return None


def owners(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Who the assets belong to, as ``CC_PIPELINE_OWNERS`` names them."""
    return words_in(os.environ if environ is None else environ, "OWNERS") or ("team:cc-pipeline",)


def in_environment(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """What the variable of a setting says, ``None`` where it says nothing; whatever the home has chosen."""
    return text_in(os.environ if environ is None else environ, name.upper())
