"""Publishes ``cc.duckdb`` for analysts, with its views, macros and notes."""
