"""What to tell: checks, health, what was left out."""
