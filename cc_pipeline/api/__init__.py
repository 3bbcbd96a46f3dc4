"""The Python interface of ``import cc_pipeline``: one home, with the words of the command line, which calls it.

``cc_pipeline.open`` gives a ``Home`` (``home.py``).
"""
