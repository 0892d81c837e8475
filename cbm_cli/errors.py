"""The one error of the package that a user is meant to read."""


class CbmError(Exception):
    """Something the user asked for cannot be done; the message names the place and the
    remedy.

    The command line prints the message without a traceback and exits with ``exit_code``
    (2: usage or configuration; 3: results incomplete).

    Attributes
    ----------
    field : str
        The setting (dotted if nested) or the file at fault, printed before the message;
        empty: none.
    message : str
        What is wrong, without the field.
    """

    exit_code = 2
    _begins_with_field = True

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(
            f"{field}: {message}" if field and self._begins_with_field else message
        )
        self.field, self.message = field, message


class FieldError(CbmError, ValueError):
    """A value that does not fit; ``field`` is the one to look at first, dotted where
    nested, or empty.
    """

    _begins_with_field = False


class DamagedError(CbmError):
    """A file is missing, or its checksum proves that it was cut short or changed.

    Every other failure to read a file says nothing against the file.
    """


class IncompleteError(CbmError):
    """The results are incomplete for the command."""

    exit_code = 3
