"""Look-ups in the columnar index."""
