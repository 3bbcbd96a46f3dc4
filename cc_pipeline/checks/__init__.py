"""Verdicts on tables, homes and sources: they say what is so, and what to do."""
