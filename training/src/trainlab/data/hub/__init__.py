"""Hub data sets: fetching them (download), rows to train on (hub_rows)."""
