"""Records and pages on Apache Spark: the job that a driver runs, and what its workers do."""
