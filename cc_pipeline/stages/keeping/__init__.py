"""What is held and stored, and what goes."""
