"""The command line: parses, calls the API, prints, sets the exit code."""
