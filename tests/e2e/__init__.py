"""The tests on the embedded cluster, and what they see of the host."""
