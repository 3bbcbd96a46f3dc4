"""Asks a source for captures until each has one outcome: whose turn it is, how often, and what has not come yet."""
