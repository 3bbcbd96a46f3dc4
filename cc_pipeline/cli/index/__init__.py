"""Commands about the index: harvest, catalog, look-ups."""
