"""The workspace of a run: a home (the folder), its source and lake; and the tables of a lake."""
