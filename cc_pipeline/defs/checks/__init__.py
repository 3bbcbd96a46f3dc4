"""Checks in Dagster: the steps that evaluate them, what they look at, and what the UI shows of a result."""
