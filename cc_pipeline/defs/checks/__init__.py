"""Checks in Dagster: the steps that evaluate them, their scope, and the display of results in the UI."""
