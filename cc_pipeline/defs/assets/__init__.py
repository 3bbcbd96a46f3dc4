"""The assets, one noun a file."""
