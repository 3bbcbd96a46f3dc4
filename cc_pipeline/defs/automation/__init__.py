"""What starts runs by itself, and what looks at those that ended."""
