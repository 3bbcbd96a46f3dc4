"""Exports of a home as files: tables, records, one page, with documents about their origin."""
