"""Direct Preference Optimization of a parent stage: pairs of a chosen and a rejected answer."""
