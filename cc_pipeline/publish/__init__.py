"""What analysts read: ``cc.duckdb`` with its views, macros and notes."""
