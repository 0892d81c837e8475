"""Settings in words: their names and values in tables, pictures, pages and findings."""

from typing import Any

from cbm_cli.grid.names import BACK_PROPAGATION, Sampler, Scheme
from cbm_cli.sheets import Label, in_powers
from cbm_cli.text import text_of

_NAMES = {"model_hidden": "hidden units", "gradient_fisher": "Fisher"}
# Their values are clear without a name.
_SPEAKING = ("data", "experiment", "offsets", "sampler", "init", "model_kind")


def name_of(setting: str) -> str:
    """Return the name of a setting, a column of ``summary.csv``: ``hidden units``,
    ``learning rate``.
    """
    return _NAMES.get(setting, setting.replace("_", " "))


def value_of(setting: str, value: Any) -> Label:
    """Return the value of a setting, such as ``dd^b_s``, ``PT_10`` or ``0.05``; a dash
    if it has none.
    """
    kinds: dict[str, type[Scheme] | type[Sampler]] = {
        "offsets": Scheme,
        "sampler": Sampler,
    }
    if setting not in kinds or value in (BACK_PROPAGATION, None, ""):
        text = text_of(value) or "–"
        power = isinstance(value, float) and "e" in text
        return Label(text, text, f"${in_powers(text)}$") if power else Label.of(text)
    parsed = kinds[setting].parse(str(value))
    latex = f"${parsed.latex()}$" if setting == "offsets" else parsed.latex()
    return Label(str(parsed), parsed.unicode(), latex)


def with_name(setting: str, value: Any) -> Label:
    """Return a value with its name, ``η = 0.05``, unless it is clear by itself:
    ``PCD-1``, ``mnist``.
    """
    spelled = value_of(setting, value)
    if setting in _SPEAKING:
        return spelled
    if setting == "gradient_kind":
        return Label.of(f"{value} gradient")
    if setting == "gradient_scale_to":
        return Label.of("not scaled" if value == "none" else f"norm of the {value}")
    if setting == "learning_rate":
        return Label.join([Label.of("η"), spelled], " = ")
    return Label.join([Label.of(name_of(setting)), spelled], " ")
