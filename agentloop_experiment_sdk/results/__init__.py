"""Where results go: the results directory and the delivery of its rows."""
