"""The sensors and schedules of a home: what each does in a tick, and turning them on and off."""
