"""From a stored HTTP response to meaning. Pure: bytes in, values out; imports nothing of ours but ``errors``,
``capture_columns``, ``codings`` and ``compiled``."""
