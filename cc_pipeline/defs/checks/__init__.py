"""Asset checks: what is asked of each table, and how a look is told to Dagster."""
