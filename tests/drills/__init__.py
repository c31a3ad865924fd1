"""Faults on purpose, on the embedded cluster: `python -m drills` (make test-drills)."""
