"""The 2012 metadata document, written and read, and its simhash."""
