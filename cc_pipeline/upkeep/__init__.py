"""What keeps a lake small and whole: merging, sweeping, purging, verifying stored files."""
