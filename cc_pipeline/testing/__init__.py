"""A mini crawl, for the demo, tests and benchmarks."""
