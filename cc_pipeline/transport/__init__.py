"""Verified byte ranges of a source: retries by kind of fault, one request budget per machine."""
