"""Where records are fetched and pages parsed beside this machine's own processes."""
