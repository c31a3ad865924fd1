"""The one error that users see as a sentence; any other exception is a bug and keeps its traceback."""


class UserError(Exception):
    """Wrong input or environment: the message names file, key, value and remedy; the CLI prints it and exits 2."""
