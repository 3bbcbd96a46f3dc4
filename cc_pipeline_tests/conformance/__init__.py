"""Other people's trouble: inputs after public bug reports, in words and code of our own, each with what is right.

A module a kind, and in it a line a report. Every reader of archives, and every locator, is run over all. Whoever
adds one adds it to ``READERS`` (``responses.py``), ``ARCHIVE_READERS`` (``framing.py``) or ``LOCATORS``
(``test_locators.py``).
"""
