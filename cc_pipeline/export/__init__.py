"""What leaves a home as files: tables, records, one page, with papers that say where it came from."""
