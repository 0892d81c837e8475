"""The version of cbm, which results record."""

__version__ = "1.0.0.dev0"
