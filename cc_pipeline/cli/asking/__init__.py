"""Commands that ask a home in SQL."""
