"""What analysts read: ``cc.duckdb`` with its views, macros and notes, and a report of each target."""
