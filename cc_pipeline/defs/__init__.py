"""Dagster: one noun a file. No other room imports it, but for types in ``cli/commands/domains.py``."""
