"""What sites ask of robots, at the time: robots.txt captures of targets' hosts, read into a table."""
