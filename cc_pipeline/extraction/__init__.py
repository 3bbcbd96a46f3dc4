"""What is to be done of a slice, and doing it: standing, plan, locate, fetch, parse, run."""
