"""What sites ask of robots, at the time: robots.txt captures of targets' hosts, read into a table."""

from typing import Final

#: Raised when the same records would give other rows of ``site_policies``.
VERSION: Final = "1"
