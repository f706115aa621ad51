"""The only code that touches the two official clients; it translates their errors once."""
