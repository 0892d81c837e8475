"""The letters of offset schemes: a row of `LETTERS` decides all about a letter."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Letter:
    """The parts of the offset of a unit.

    The new offset is ``data * <data mean> + model * <model mean> + constant +
    noise * <uniform noise>``, with a noise between 0 and 1.

    Parameters
    ----------
    name : str
        What messages call it.
    data, model, constant, noise : float
        The shares.

    Examples
    --------
    >>> LETTERS["a"].shares
    (0.5, 0.5, 0.0, 0.0)
    >>> [letter for letter, row in LETTERS.items() if row.needs_model]
    ['m', 'a']
    """

    name: str
    data: float = 0.0
    model: float = 0.0
    constant: float = 0.0
    noise: float = 0.0

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Shares of the data mean, the model mean, the constant 1 and the noise."""
        return (self.data, self.model, self.constant, self.noise)

    @property
    def is_none(self) -> bool:
        """Whether the offset is always 0."""
        return not any(self.shares)

    @property
    def is_fixed(self) -> bool:
        """Whether the offset is the same number in all updates."""
        return not (self.data or self.model or self.noise)

    @property
    def is_data_mean(self) -> bool:
        """Whether the offset is the data mean alone."""
        return self.shares == (1, 0, 0, 0)

    @property
    def needs_model(self) -> bool:
        """Whether the offset contains a mean of the model, which auto encoders lack."""
        return self.model != 0

    @property
    def starts_at_mean(self) -> bool:
        """Whether the offset of a visible unit starts at the mean of the data."""
        return self.data != 0 or self.model != 0

    @property
    def start(self) -> float:
        """The offset before the first update, where it does not start at the mean."""
        return self.constant if self.is_fixed else 0.5


# In the order in which messages list them
LETTERS = {
    "0": Letter("none"),
    "d": Letter("data mean", data=1),
    "m": Letter("model mean", model=1),
    "a": Letter("their average", data=1 / 2, model=1 / 2),
    "h": Letter("one half", constant=1 / 2),
    "r": Letter("random", noise=1),
}
