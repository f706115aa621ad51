"""Calling an agent: a task in, an output out."""

# here, so that the signatures with this default cost no import of what they use
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
