"""Commands that hand on what a home has."""
