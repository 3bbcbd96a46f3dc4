"""Other people's trouble: inputs after public bug reports, in words and code of our own, each with what is right.

A module a kind, and in it a line a report. Every reader of archives is run over all: whoever adds one adds it to
``READERS`` (``responses.py``) or ``ARCHIVE_READERS`` (``framing.py``). Every kind of index is, by ``LocatorTests``.
"""
