"""Running it: attempts in, results out, and the cloud record of the run."""
