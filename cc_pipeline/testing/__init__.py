"""For tests of this project and of who extends it: a mini crawl, and what each extension, index and rate source does.

``mini_crawl`` needs nothing more than the pipeline. The suites are classes for pytest, from ``cc_pipeline[testing]``: a
test class inherits one, says what it is about, and has all its tests.
"""
