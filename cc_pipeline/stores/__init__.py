"""Opens a source (a local folder, an HTTP address or an S3 bucket) and returns its raw answers: nothing is hidden."""
