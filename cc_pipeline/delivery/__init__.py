"""Data sets of texts without near copies."""
