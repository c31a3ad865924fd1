"""The tests of the collection's plugins, and what they share."""
