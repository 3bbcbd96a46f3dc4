"""What ``import cc_pipeline`` offers: one home, asked from Python in the words of the command line, which calls it.

``cc_pipeline.open`` gives a ``Home`` (``home.py``).
"""
