"""The paper's published values, as package data."""

from importlib.resources import files

PUBLISHED_RESULTS = files(__name__) / "published-results.csv"
