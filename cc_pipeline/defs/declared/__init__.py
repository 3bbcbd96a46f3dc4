"""The declared assets, checks, jobs, sensors and schedules of one home, and the bodies that they run."""
