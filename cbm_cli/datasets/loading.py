"""Loading data sets, by name or from files."""

import re
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
from cbm_cli.datasets.spec import DataSpec, available, make_spec
from cbm_cli.datasets.toys import bars_and_stripes, shifting_bar
from cbm_cli.errors import FieldError
from cbm_cli.text import count, did_you_mean

if TYPE_CHECKING:  # which imports pandas and a part of SciPy; toys need neither
    from cbm_cli.datasets.formats import Table

_TOYS: dict[str | None, Any] = {
    "bars-and-stripes": bars_and_stripes,
    "shifting-bar": shifting_bar,
}


def load(
    data: DataSpec | str | None = None, /, *, folder: str | Path = "", **options: Any
) -> Dataset:
    """Return a data set to train on, given with its options, or by name and fields of
    `DataSpec`.

    Paths are relative to ``folder``. FieldError for options that do not fit, files that
    are missing or damaged, and a training part of one value only.
    """
    spec = (
        data
        if isinstance(data, DataSpec)
        else make_spec(**options | ({"name": data} if data else {}))
    )
    dataset = _load(spec, folder)
    if dataset.train.min() == dataset.train.max():
        field = (
            "name"
            if not spec.path
            else "threshold"
            if spec.binarise == "threshold"
            else "path"
        )
        told = (
            f"{spec.path or dataset.name}: all values of the training part are "
            f"{dataset.train.max()}"
        )
        raise FieldError(f"{told}; there is nothing to learn from constant data", field)
    return dataset


def load_again(
    data: DataSpec, folder: str, digests: Mapping[str, Sequence[str]]
) -> Dataset:
    """Return the data set that trials have used; FieldError without its files, or if
    its rows are others.

    ``folder`` is that of the trials' grid; ``digests`` are those of the rows, by title
    of the data.
    """
    there = "; name the folder that holds it by --data"
    if data.path and (missing := available(data, folder)):
        raise FieldError(f"{missing}{there}", "path")
    found = load(data, folder=folder)
    if found.digest not in digests.get(data.title, [found.digest]):
        raise FieldError(
            f"{data.title}: has other rows than those of its trials{there}", "path"
        )
    return found


def load_source(
    source: str, width: int = 0, names: Sequence[str] = (), option: str = "--data "
) -> Dataset:
    """Return all parts of the data set that a command line names, behind an option.

    ``source`` is a data set with its options, as ``mnist`` or
    ``shifting-bar:size=9,bar=1,flip=true``, or a file, as ``rows.csv`` or
    ``grey.npy:binarise=threshold``. Rows of a LIBSVM file are filled up to ``width``;
    columns are put into the order of ``names``, those of a machine's visible units.
    """
    name, text = re.fullmatch(r"(.*?)(?::([a-z_]+=.*))?", source, re.DOTALL).groups("")  # type: ignore[union-attr]
    if not isfile(name) and name not in SOURCES:
        hint = near(Path(name)) or did_you_mean(name, SOURCES)
        raise FieldError(f"{option}{source}: no such file or data set{hint}")
    given: dict[str, Any] = {}
    for item in filter(
        None, re.split(r",(?=[a-z_]+=)", text)
    ):  # drop=id,class,flip=true has two
        field, _, value = item.partition("=")
        if given.setdefault(field, value) is not value:
            raise FieldError(
                f"{option}{source}: {field} is given twice; give it once", field
            )
    try:
        spec = make_spec(**given | {"path" if isfile(name) else "name": name})
    except FieldError as error:
        raise FieldError(f"{option}{source}: {error}", error.field) from None
    return _load(spec, "", width, tuple(names))


def describe(data: DataSpec, dataset: Dataset) -> str:
    """Return a line on what was loaded: ``digits.csv: 1,400 rows x 64 units, 12.3%
    ones``.
    """
    share = dataset.train.mean() / dataset.levels
    ones = (
        f"{share:.1%} ones" if dataset.levels == 1 else f"grey values, mean {share:.3f}"
    )
    others = [
        f"{part} {count(len(rows), 'row')}"
        for part, rows in dataset.parts.items()
        if part != "train"
    ]
    title = (
        f"{data.path}{' flipped' if data.flip else ''}" if data.path else dataset.name
    )
    line = f"{title}: {len(dataset.train):,} rows x {dataset.width} units, {ones}"
    return f"{line} ({', '.join(others)})" if others else line


def read_parts(
    spec: DataSpec,
    given: Mapping[str, Any],
    folder: str | Path = "",
    width: int = 0,
    names: Names = (),
) -> "dict[str, Table]":
    """Return the parts with the same columns: ``path``, ``valid`` and ``test`` of
    ``given``.

    These are files, of which the first may hold other parts too, or what `table_of`
    takes. Columns are matched by name; sparse parts are filled up with zeros.
    """
    from cbm_cli.datasets.formats import columns_in_order, reading, tables_in, unpacked

    parts: dict[str, Table] = {}
    columns = Columns(spec.columns, spec.drop)
    for part, option in zip(PARTS, ("path", "valid", "test"), strict=True):
        if (source := given.get(option)) is None:
            continue
        is_file = isinstance(source, str | PathLike)
        where = str(own_file(folder, str(source))) if is_file else f"data[{part!r}]"
        with reading(where, option):
            found = tables_in(
                unpacked(Path(where)) if is_file else source, columns, spec.header
            )
            found = {name or part: table for name, table in found.items()}
            if part not in found:
                raise FieldError(f"has no {part} part; it has {', '.join(found)}")
            for name in found if part == "train" else [part]:
                if name in parts:
                    raise FieldError(
                        f"the {name} part is in {parts[name].where} already; "
                        "remove "
                        "one of them"
                    )
                parts[name] = replace(
                    found[name], where=where + f" ({name})" * (len(found) > 1)
                )
    if spec.header is not None and not any(table.is_text for table in parts.values()):
        told = (
            f"{parts['train'].where}: header has no effect: it is for text in "
            "columns, as CSV; remove it"
        )
        raise FieldError(told, "header")
    width, train = (
        max(width, *(table.values.shape[1] for table in parts.values())),
        parts["train"],
    )
    for name, table in parts.items():  # train first: the others get its columns
        with reading(table.where, name):
            missing = width - table.values.shape[1]
            if table.sparse and missing:
                check_size(len(table.values) * width * table.values.itemsize)
                table = replace(
                    table, values=np.pad(table.values, ((0, 0), (0, missing)))
                )
            if names and table.names:
                table = columns_in_order(table, names, len(names), "the machine")
            train = table if name == "train" else train
            parts[name] = columns_in_order(
                table, names or train.names, train.values.shape[1], train.where
            )
    return parts


def _load(
    spec: DataSpec, folder: str | Path, width: int = 0, names: Names = ()
) -> Dataset:
    if not spec.path and spec.name in _TOYS:
        sizes = SOURCES[spec.name or ""].options
        dataset = _TOYS[spec.name](
            **{option: getattr(spec, option) for option in sizes}
        )
    else:
        from cbm_cli.datasets.grey import units_of

        found = (
            read_parts(spec, spec.model_dump(), folder, width, names)
            if spec.path
            else _published(spec)
        )
        (units, levels), train = units_of(spec, found), found["train"]
        dataset = Dataset(
            spec.unflipped, **units, levels=levels, image=train.image, names=train.names
        )
    if spec.hold_out or spec.hold_out_test:
        dataset = _held_out(dataset, spec)
    if not spec.flip:
        return dataset
    flipped: dict[str, Any] = {
        name: dataset.levels - part for name, part in dataset.parts.items()
    }
    return replace(dataset, name=f"flipped-{dataset.name}", **flipped)


def _published(spec: DataSpec) -> "dict[str, Table]":
    """Return the parts of a published data set; each of its files is compared with its
    checksum.
    """
    from cbm_cli.datasets.fetch import check
    from cbm_cli.datasets.formats import Table, tables_in

    source = SOURCES[spec.name or ""]
    rows: dict[str, Any] = {}
    for file, path in source.locate().items():
        checked = check(file, path)
        if checked.verdict != "ok":
            raise FieldError(
                (
                    f"{path}: {checked.verdict}; `cbm data fetch {spec.name}` gets it "
                    "again"
                ),
                "name",
            )
        for part, table in tables_in(checked.content).items():
            rows[part or file.part] = table.values
    if source.divide:
        whole = rows.pop(source.divide)
        if source.shuffle is not None:
            whole = whole[
                np.random.Generator(np.random.Philox(key=source.shuffle)).permutation(
                    len(whole)
                )
            ]
        cut = [part for part in source.rows if part not in rows]
        ends = np.cumsum([source.rows[part] for part in cut])[:-1]
        rows |= dict(zip(cut, np.split(whole, ends), strict=True))
    arrays = {part: np.ascontiguousarray(rows[part]) for part in PARTS if part in rows}
    return {
        part: Table(array, image=source.image, where=source.name)
        for part, array in arrays.items()
    }


def _held_out(dataset: Dataset, spec: DataSpec) -> Dataset:
    """Return a data set with rows of its training part as the valid part, the test
    part, or both.
    """
    n, sizes = len(dataset.train), {}
    for field, part in {"hold_out": "valid", "hold_out_test": "test"}.items():
        if asked := getattr(spec, field):
            sizes[part] = asked if isinstance(asked, int) else max(1, round(asked * n))
            if part in dataset.parts:
                raise FieldError(
                    f"{dataset.name}: already has a {part} part; remove {field}", field
                )
    if (left := n - sum(sizes.values())) < 1:
        told = f"{dataset.name}: has {n} rows; hold_out must leave some to train on"
        raise FieldError(told, "hold_out" if spec.hold_out else "hold_out_test")
    of = np.repeat(np.arange(len(sizes) + 1), [left, *sizes.values()])
    if spec.rows == "random":
        of = np.random.Generator(np.random.Philox(key=spec.seed)).permutation(of)
    parts: dict[str, Any] = {
        part: dataset.train[of == n] for n, part in enumerate(("train", *sizes))
    }
    return replace(dataset, **parts)
