"""Features that can be deleted: each package here has an ``EXTENSION`` (``cc_pipeline/extension.py``)."""
