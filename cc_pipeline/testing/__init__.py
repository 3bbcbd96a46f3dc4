"""Tools for tests of this project and of its extensions: a mini crawl, and test suites for implementations of each
interface.

``mini_crawl`` needs only the pipeline. The suites are classes for pytest, from ``cc_pipeline[testing]``: a test class
inherits one, opens the object under test, and has all its tests.
"""
