"""Verdicts, with what to do: on tables (checks of assets), on a home (``doctor``), on a source (``doctor --live``)."""
