"""The domain of the labels by which the package knows its own objects; imports nothing."""

DOMAIN = "trainlab.dev"
