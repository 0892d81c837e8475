"""The version, in a module of its own, so that the package does not import what imports the package."""

__version__ = "1.0.0.dev0"
