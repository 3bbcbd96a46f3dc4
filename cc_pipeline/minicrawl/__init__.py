"""A generator of small, faithful Common Crawl buckets, for the demo, the tests and the benchmarks."""
