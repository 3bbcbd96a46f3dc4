"""What there is of one home: assets, checks, jobs, sensors and schedules, and of each what it does where it runs."""
