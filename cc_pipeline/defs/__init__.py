"""The only room that imports dagster: one noun a file."""
