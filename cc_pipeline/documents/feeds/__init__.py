"""RSS 0.9x, 1.0, 1.1 and 2.0, Atom 0.3 and 1.0, as one shape."""
