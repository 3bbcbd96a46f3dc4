"""Opening a place: file, HTTP, S3. Reading ranges and writing objects through one interface."""
