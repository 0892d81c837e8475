"""The one error of the package that a user is meant to read."""

from typing import Literal

Kind = Literal[
    "value",  # of the wrong type or form, or outside its range
    "unknown",  # a name that does not exist here
    "missing",  # something that has to be given, or be there: a field, a file, a part of the data, a package
    "conflict",  # with another value; also what is given twice
    "unsuited",  # to this machine, data set, picture or command
    "limit",  # larger or longer than is done
    "unreadable",  # damaged, of another format or a newer version
    "changed",  # since it was written, read or kept
    "system",  # refused by the disk, the network, the scheduler or another process
    "failed",  # trials, or code of the user
    "incomplete",  # results that do not hold what was asked for
]


class CbmError(Exception):
    """Something the user asked for cannot be done; the message names the place and the remedy.

    The command line prints the message without a traceback and exits with ``exit_code`` (2: usage or
    configuration; 3: results incomplete for what was asked).

    Attributes
    ----------
    kinds : tuple of str
        What is wrong, one word for each line of the message that is a problem of its own.
    field : str
        What is at fault and stands before the message, if named: a setting, dotted where nested, or a file.
    message : str
        What is wrong, without the field.
    """

    exit_code = 2

    def __init__(self, message: str, *kinds: Kind, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field, self.message = field, message
        self.kinds: tuple[Kind, ...] = kinds or ("value",)


class IncompleteError(CbmError):
    """The results do not hold what was asked for."""

    exit_code = 3

    def __init__(self, message: str, *kinds: Kind, field: str = "") -> None:
        super().__init__(message, *kinds or ("incomplete",), field=field)
