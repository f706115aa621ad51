"""What to run: the configuration, its credentials, and the plan's tasks."""
