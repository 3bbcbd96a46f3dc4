"""Check results with advice: on tables (asset checks), on a home (``doctor``), and on a source (``doctor --live``)."""
