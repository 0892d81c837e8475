"""Loading data sets, by name or from files."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cbm_cli.arrays import check_size
from cbm_cli.datasets.columns import Columns
from cbm_cli.datasets.dataset import PARTS, Dataset, Names
from cbm_cli.datasets.published import SOURCES, near, own_file
from cbm_cli.datasets.spec import Data, lack_of, make_spec
from cbm_cli.datasets.toys import bars_and_stripes, shifting_bar
from cbm_cli.errors import FieldError
from cbm_cli.text import count, did_you_mean

if TYPE_CHECKING:  # which imports pandas and a part of SciPy; toys need neither
    from cbm_cli.datasets.tables import Table

_TOYS: dict[str | None, Any] = {
    "bars-and-stripes": bars_and_stripes,
    "shifting-bar": shifting_bar,
}
_FIELD_OF_PART = {"train": "path", "valid": "valid", "test": "test"}
_HELD_OUT = {"hold_out": "valid", "hold_out_test": "test"}
# a field of a grid in a message, as drop: [id, class]
_IN_A_GRID = re.compile(
    r"\b(header|columns|drop|scale|threshold|binarise|hold_out|hold_out_test): "
    r"(?:\[([^]]*)\]|([\w.-]*\w))"
)


def load(
    data: Data | str | None = None, /, *, folder: str | Path = "", **options: Any
) -> Dataset:
    """Return a data set to train on.

    Parameters
    ----------
    data : Data or str, optional
        A data set with its options, or the name of one.
    folder : str or Path
        Paths are relative to it.
    **options
        Fields of `Data`.

    Raises
    ------
    FieldError
        Options do not fit, files are missing or damaged, or the training part has one
        value only.

    Examples
    --------
    >>> load("shifting-bar", size=4, bar=1).train.tolist()
    [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    """
    if isinstance(data, Data):
        spec = data
    else:
        if data:
            options["name"] = data
        spec = make_spec(**options)
    dataset = _load(spec, folder)
    least = dataset.train.min()
    if least == dataset.train.max():
        field = "path" if spec.path else "name"
        if spec.path and spec.binarise == "threshold":
            field = "threshold"
        raise FieldError(
            f"{spec.path or dataset.name}: all values of the training part are {least}"
            "; there is nothing to learn from constant data",
            field,
        )
    return dataset


def load_again(
    data: Data, folder: str, digests: Mapping[str, Sequence[str]]
) -> Dataset:
    """Return the data set that trials have used.

    Parameters
    ----------
    data : Data
        The data set. FieldError if its files are not there.
    folder : str
        The folder of the trials' grid.
    digests : mapping
        Digests of the rows by title of the data. FieldError for other rows.
    """
    remedy = "; name the folder that holds it by --data"
    missing = lack_of(data, folder) if data.path else ""
    if missing:
        raise FieldError(f"{missing}{remedy}", "path")
    dataset = load(data, folder=folder)
    if dataset.digest not in digests.get(data.title, [dataset.digest]):
        raise FieldError(
            f"{data.title}: has other rows than those of its trials{remedy}", "path"
        )
    return dataset


def load_source(
    source: str, width: int = 0, names: Sequence[str] = (), option: str = "--data "
) -> Dataset:
    """Return all parts of the data set that a command line names.

    Parameters
    ----------
    source : str
        A data set with its options, as ``mnist`` or
        ``shifting-bar:size=9,bar=1,flip=true``, or a file, as ``rows.csv`` or
        ``grey.npy:binarise=threshold``.
    width : int
        Rows of a LIBSVM file are filled up to it.
    names : sequence of str
        Names of a machine's visible units. A file with names gives these columns in
        this order.
    option : str
        The option that the source follows, for messages.

    Examples
    --------
    >>> load_source("shifting-bar:size=3,bar=1,flip=true").train.tolist()
    [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    name, *options = re.split(":(?=[a-z_]+=)", source, maxsplit=1)
    if not isfile(name) and name not in SOURCES:
        hint = near(Path(name)) or did_you_mean(name, SOURCES)
        raise FieldError(f"{option}{source}: no such file or data set{hint}")
    fields: dict[str, Any] = {}
    # drop=id,class,flip=true has two
    for pair in re.split(",(?=[a-z_]+=)", options[0]) if options else []:
        field, _, value = pair.partition("=")
        if field in fields:
            raise FieldError(
                f"{option}{source}: {field} is given twice; give it once", field
            )
        fields[field] = value
    fields["path" if isfile(name) else "name"] = name
    try:
        spec = make_spec(**fields)
    except FieldError as error:
        raise FieldError(f"{option}{source}: {error}", error.field) from None
    try:
        return _load(spec, "", width, tuple(names))
    except FieldError as error:
        message = _in_options(str(error), option, name)
        raise FieldError(message, error.field) from None


def describe(data: Data, dataset: Dataset) -> str:
    """Return a line on what was loaded.

    Examples
    --------
    >>> bars = make_spec(name="bars-and-stripes", size=2, hold_out=2)
    >>> describe(bars, load(bars))
    'bars-and-stripes: 6 rows x 4 units, 58.3% ones (valid 2 rows)'
    """
    share = dataset.train.mean() / dataset.levels
    line = f"{len(dataset.train):,} rows x {dataset.width} units"
    if dataset.levels == 1:
        line += f", {share:.1%} ones"
    else:
        line += f", grey values, mean {share:.3f}"
    if data.path and dataset.of_bytes:
        line += ", of bytes from 0 to 255"
    others = [
        f"{part} {count(len(rows), 'row')}"
        for part, rows in dataset.parts.items()
        if part != "train"
    ]
    if others:
        line += f" ({', '.join(others)})"
    title = dataset.name
    if data.path:
        title = f"{data.path} flipped" if data.flip else data.path
    return f"{title}: {line}"


def read_parts(
    spec: Data,
    sources: Mapping[str, Any],
    folder: str | Path = "",
    width: int = 0,
    names: Names = (),
) -> "dict[str, Table]":
    """Return the parts of a data set with the same columns.

    Parameters
    ----------
    spec : Data
        Which columns are units, and whether first lines hold names.
    sources : mapping
        ``path``, ``valid`` and ``test``: files, of which the first may hold other parts
        too, or what `table_of` takes. Other keys are ignored.
    folder : str or Path
        Paths are relative to it.
    width : int
        Sparse parts are filled up with zeros to this width, and to that of the others.
    names : tuple of str
        Names of a machine's visible units, else of the training part: of files with
        names, these columns are taken in this order.
    """
    parts: dict[str, Table] = {}
    for part, field in _FIELD_OF_PART.items():
        source = sources.get(field)
        if source is None:
            continue
        if parts and not names:
            names = parts["train"].names
        columns = Columns(spec.columns, spec.drop, units=names)
        tables = _read_source(source, part, columns, spec.header, folder)
        for name, table in tables.items():
            if name in parts:
                raise FieldError(
                    f"{table.where}: the {name} part is in {parts[name].where} "
                    "already; remove one of them",
                    field,
                )
            parts[name] = table
    if spec.header is not None and not any(table.is_text for table in parts.values()):
        raise FieldError(
            f"{parts['train'].where}: header has no effect: it is for text in columns, "
            "as CSV; remove it",
            "header",
        )
    return _with_same_width(parts, width)


def _read_source(
    source: Any,
    part: str,
    columns: Columns,
    header: bool | None,
    folder: str | Path,
) -> "dict[str, Table]":
    """Return the parts in a source: all of them for train, else the one that it is
    for.
    """
    from cbm_cli.datasets.formats import reading, tables_in, unpacked

    is_file = isinstance(source, str | PathLike)
    where = str(own_file(folder, str(source))) if is_file else f"data[{part!r}]"
    with reading(where, _FIELD_OF_PART[part]):
        content = unpacked(Path(where)) if is_file else source
        tables = tables_in(content, columns, header)
        if "" in tables:
            tables = {part: tables[""]}
        if part not in tables:
            raise FieldError(f"has no {part} part; it has {', '.join(tables)}")
    parts: dict[str, Table] = {}
    for name, table in tables.items():
        if part in (name, "train"):
            place = f"{where} ({name})" if len(tables) > 1 else where
            parts[name] = replace(table, where=place)
    return parts


def _with_same_width(parts: "dict[str, Table]", width: int) -> "dict[str, Table]":
    """Return parts as wide as the training part; sparse ones are filled up with zeros,
    at least to ``width``.
    """
    from cbm_cli.datasets.formats import reading

    widest = max(width, *(table.values.shape[1] for table in parts.values()))
    filled: dict[str, Table] = {}
    for name, table in parts.items():  # train first
        filled[name] = table
        with reading(table.where, name):
            rows, columns = table.values.shape
            if table.sparse and columns < widest:
                check_size(rows * widest * table.values.itemsize)
                values = np.pad(table.values, ((0, 0), (0, widest - columns)))
                filled[name] = replace(table, values=values)
                columns = widest
            needed = filled["train"].values.shape[1]
            if columns != needed:
                raise FieldError(
                    f"has {columns:,} columns, {parts['train'].where} has {needed:,}; "
                    "the same columns are needed"
                )
    return filled


def _load(spec: Data, folder: str | Path, width: int = 0, names: Names = ()) -> Dataset:
    if spec.name in _TOYS and not spec.path:
        options = SOURCES[spec.unflipped].options
        sizes = {option: getattr(spec, option) for option in options}
        dataset = _TOYS[spec.name](**sizes)
    else:
        dataset = _from_tables(spec, folder, width, names)
    if spec.hold_out or spec.hold_out_test:
        dataset = _held_out(dataset, spec)
    if not spec.flip:
        return dataset
    flipped: dict[str, Any] = {
        name: dataset.levels - rows for name, rows in dataset.parts.items()
    }
    return replace(dataset, name=f"flipped-{dataset.name}", **flipped)


def _from_tables(spec: Data, folder: str | Path, width: int, names: Names) -> Dataset:
    """Return the data set of files, a user's own or published ones."""
    from cbm_cli.datasets.grey import units_of

    if spec.path:
        tables = read_parts(spec, spec.model_dump(), folder, width, names)
    else:
        tables = _published(spec)
    units = units_of(spec, tables)
    train = tables["train"]
    return Dataset(
        spec.unflipped,
        **units.parts,
        levels=units.levels,
        image=train.image,
        names=train.names or names,
        of_bytes=units.of_bytes,
    )


def _published(spec: Data) -> "dict[str, Table]":
    """Return the parts of a published data set; each of its files is compared with its
    checksum.
    """
    from cbm_cli.datasets.fetch import check
    from cbm_cli.datasets.formats import tables_in
    from cbm_cli.datasets.tables import Table

    source = SOURCES[spec.unflipped]
    lacking = source.lacking()
    if lacking:
        raise FieldError(lacking, "name")
    rows: dict[str, Any] = {}
    for file, path in source.locate().items():
        checked = check(file, path)
        if checked.verdict != "ok":
            raise FieldError(
                f"{path}: {checked.verdict}; `cbm data fetch {spec.name}` gets it "
                "again",
                "name",
            )
        for part, table in tables_in(checked.content).items():
            rows[part or file.part] = table.values
    if source.divide:
        undivided = rows.pop(source.divide)
        if source.shuffle is not None:
            random = np.random.Generator(np.random.Philox(key=source.shuffle))
            undivided = undivided[random.permutation(len(undivided))]
        missing = [part for part in source.rows if part not in rows]
        ends = np.cumsum([source.rows[part] for part in missing])[:-1]
        rows |= dict(zip(missing, np.split(undivided, ends), strict=True))
    return {
        part: Table(
            np.ascontiguousarray(rows[part]), image=source.image, where=source.name
        )
        for part in PARTS
        if part in rows
    }


def _held_out(dataset: Dataset, spec: Data) -> Dataset:
    """Return a data set with rows of its training part as the valid part, the test
    part, or both.
    """
    n = len(dataset.train)
    sizes: dict[str, int] = {}
    for field, part in _HELD_OUT.items():
        held = getattr(spec, field)
        if not held:
            continue
        if part in dataset.parts:
            raise FieldError(
                f"{dataset.name}: already has a {part} part; remove {field}", field
            )
        sizes[part] = held if isinstance(held, int) else max(1, round(held * n))
    left = n - sum(sizes.values())
    if left < 1:
        raise FieldError(
            f"{dataset.name}: has {n} rows; hold_out must leave some to train on",
            "hold_out" if spec.hold_out else "hold_out_test",
        )
    part_of_row = np.repeat(np.arange(len(sizes) + 1), [left, *sizes.values()])
    if spec.rows == "random":
        random = np.random.Generator(np.random.Philox(key=spec.seed))
        part_of_row = random.permutation(part_of_row)
    parts: dict[str, Any] = {}
    for number, part in enumerate(("train", *sizes)):
        parts[part] = dataset.train[part_of_row == number]
    return replace(dataset, **parts)


def _in_options(message: str, option: str, name: str) -> str:
    """Return a message with fields as a command line has them.

    Examples
    --------
    >>> _in_options("write drop: [id, class]", "--data ", "rows.csv")
    'write drop=id,class, as in --data rows.csv:drop=id,class'
    """
    options: list[str] = []

    def as_option(match: re.Match) -> str:
        field, items, value = match.groups()
        text = value if items is None else items
        if '"' not in text:
            text = text.replace(", ", ",")
        options.append(f"{field}={text}")
        return options[-1]

    message = _IN_A_GRID.sub(as_option, message)
    if not options:
        return message
    return f"{message}, as in {option}{shlex.quote(f'{name}:{options[0]}')}"
