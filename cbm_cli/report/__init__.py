"""Pictures of results."""

from cbm_cli.errors import CbmError

try:
    import matplotlib  # noqa: F401
except ValueError:
    raise CbmError(
        "MPLBACKEND names no backend of Matplotlib; unset it and start Python again"
    ) from None
