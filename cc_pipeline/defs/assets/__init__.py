"""The assets of a home: a module an idea, each with a function that returns its definitions."""
