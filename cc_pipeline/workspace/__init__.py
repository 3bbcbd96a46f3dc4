"""One home, one source, one lake, open for as long as a run lasts; and the tables that the lake has."""
