"""Data sets of a hub: what a phase says of their rows (block), how they come here (download), rows to train on (rows)."""
