"""The machine of a cell: its kind and its layers of hidden units."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_serializer, model_validator

from cbm_cli.grid.values import Frozen, Misfit

Activation = Literal["sigmoid", "tanh", "relu", "linear"]


def _sizes(value: object) -> int | tuple[int, ...] | Literal["half"]:
    """Read ``500``, ``500-500``, a list of numbers, or ``half``."""
    text = "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value).strip()
    if text == "half":
        return "half"
    try:
        sizes = tuple(map(int, text.split("-")))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1:
        shown = "a mapping" if isinstance(value, dict) else text[:60] or "empty"
        raise ValueError(
            f"must be whole numbers of 1 or more, one a hidden layer, as in 500 or 500-500, not {shown}"
        )
    return sizes if len(sizes) > 1 else sizes[0]


_ONE_LAYER = [{"type": "integer", "minimum": 1}, {"const": "half"}]
Sizes = Annotated[
    int | tuple[int, ...] | Literal["half"],
    BeforeValidator(_sizes),
    WithJsonSchema(
        {
            "anyOf": [
                *_ONE_LAYER,
                {"type": "array", "items": {"anyOf": _ONE_LAYER}, "minItems": 1},
                {"type": "string", "pattern": r"^\s*[0-9]+(-[0-9]+)+\s*$"},
            ]
        }
    ),
    Field(description="Hidden units; of several layers [500, 500] or 500-500; auto encoders: also half"),
]


class Model(Frozen):
    """The machine."""

    kind: Literal["rbm", "dbm", "auto-encoder"] = Field(description="Kind of machine")
    hidden: Sizes
    encoder: Activation = Field("sigmoid", description="Auto encoder: activation of hidden units")
    decoder: Activation = Field("sigmoid", description="Auto encoder: activation of the reconstruction")
    loss: Literal["cross-entropy", "squared"] = Field("cross-entropy", description="Auto encoder: its cost")

    @model_validator(mode="after")
    def _layers_suit_the_kind(self) -> "Model":
        if self.hidden == "half" and self.kind != "auto-encoder":
            raise Misfit("hidden", f"half is for auto encoders; give the {self.kind} a number of units")
        if self.kind == "rbm" and self.layers > 2:
            raise Misfit("hidden", f"an rbm has one hidden layer, not {self.size}; a dbm has several")
        if self.kind == "dbm" and self.layers == 2:
            raise Misfit(
                "hidden",
                f"a dbm with one hidden layer is an RBM; write kind: rbm, or two layers as in "
                f"[{self.hidden}, {self.hidden}]",
            )
        return self

    @model_validator(mode="after")
    def _activations_suit_the_kind(self) -> "Model":
        for field in ("encoder", "decoder", "loss"):
            if self.kind != "auto-encoder" and getattr(self, field) != Model.model_fields[field].default:
                raise Misfit(field, f"{field} is for auto encoders; the model is of kind {self.kind}")
        if self.loss == "cross-entropy" and self.decoder != "sigmoid":
            raise Misfit(
                "decoder",
                f"the cross entropy needs outputs within (0, 1), where the data lie, and so "
                f"decoder: sigmoid; with {self.decoder} write loss: squared",
            )
        return self

    @field_serializer("hidden")
    def _plain(self, hidden: int | tuple[int, ...] | str) -> int | str:
        return self.size if isinstance(hidden, tuple) else hidden

    @property
    def size(self) -> str:
        """Hidden units as text: ``500``, ``500-500`` or ``half``."""
        return "-".join(map(str, self.hidden)) if isinstance(self.hidden, tuple) else str(self.hidden)

    @property
    def layers(self) -> int:
        """Layers of units, the visible one included; a scheme has one letter each."""
        return 1 + (len(self.hidden) if isinstance(self.hidden, tuple) else 1)

    def hidden_layers(self, width: int) -> tuple[int, ...]:
        """Units of each hidden layer above ``width`` visible ones; half of an odd width rounds down."""
        if self.hidden == "half":
            return (max(1, width // 2),)
        return self.hidden if isinstance(self.hidden, tuple) else (self.hidden,)
