"""The metadata document of 2012: its names, its JSON, its simhash."""
