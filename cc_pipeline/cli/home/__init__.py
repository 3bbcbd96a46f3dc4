"""Commands about a home: its targets, choices, health and automation."""
