"""Opens a place (a local folder, an HTTP address or an S3 bucket) and gives its raw answers: nothing is hidden."""
