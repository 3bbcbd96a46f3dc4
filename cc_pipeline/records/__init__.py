"""Stored records: planned, fetched, checked, kept, copied."""
