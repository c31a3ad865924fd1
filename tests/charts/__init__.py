"""The tests of the chart, and how they render it."""
