"""Several hosts with one PostgreSQL: one rate for all, runs that go to whoever has least to do, and a team's files."""
