"""For tests and trials of the pipeline, and for who extends it."""
