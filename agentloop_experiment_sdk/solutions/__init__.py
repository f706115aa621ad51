"""Calling an agent: a task in, an output out."""
