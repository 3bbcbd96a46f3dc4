"""Maintenance of a lake: joining small files, sweeping, purging, verifying stored files."""
