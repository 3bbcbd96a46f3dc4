"""Dagster: one noun a file. No other room imports dagster, but for types in ``cli/commands/targets.py``."""
