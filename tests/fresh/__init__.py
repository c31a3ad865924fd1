"""The tests on fresh machines, and what makes such a machine."""
