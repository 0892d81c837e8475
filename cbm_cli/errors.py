"""The one error of the package that a user is meant to read."""


class CbmError(Exception):
    """Something the user asked for cannot be done; the message names the place and the remedy.

    The command line prints the message without a traceback and exits with ``exit_code`` (2: usage or
    configuration; 3: results incomplete for what was asked).
    """

    exit_code = 2


class IncompleteError(CbmError):
    """The results do not hold what was asked for."""

    exit_code = 3
