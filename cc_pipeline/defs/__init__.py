"""The Dagster side: one noun per file. No other room imports dagster, but for types in ``cli/commands/targets.py``."""
