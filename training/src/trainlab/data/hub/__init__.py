"""Data sets of a hub: how they come here (download), rows to train on (hub_rows)."""
