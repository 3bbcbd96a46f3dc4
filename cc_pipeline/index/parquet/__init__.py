"""Lookups in the columnar index."""
