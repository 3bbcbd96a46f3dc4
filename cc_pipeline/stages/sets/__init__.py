"""Sets of many members: in parts, of which a changed one keeps what it has."""
