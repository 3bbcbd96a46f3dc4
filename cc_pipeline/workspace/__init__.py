"""An open run: a home (the folder), its source and lake, for as long as it lasts; and the tables that a lake has."""
