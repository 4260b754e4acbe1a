"""Results as typed data: every command writes a list of scores, and every report reads it.

Numbers that are not finite are null. Keys that are numbers are strings in the files. A standard deviation is the
population's over draws, and null for one draw.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from epibench.errors import InputError
from epibench.files import DamagedError, numbers_in_lines, read_verified, with_checksum, write_text
from epibench.picture_files import PictureField, PictureFile, names_in, remove_unnamed

VERSION: Final = 2
RESULTS_NAME = "results.json"
QUICK = "-quick"  # the end of the name of a recipe that is the smaller variant of another
# Toy problems: the training region, which is the domain `train` of KLs, and the radius of the circle between classes.
TRAIN_REGION = {"toy-regression": ((-3.0, 3.0),), "toy-classification": ((0.0, 3.0), (-3.0, 3.0))}
RADIUS = 2.4
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


def printable(value: Any) -> Any:
    """Replace characters in texts that HTML cannot hold: control characters, halves of surrogate pairs."""
    if isinstance(value, dict):
        return {printable(key): printable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [printable(inner) for inner in value]
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value.encode("utf-8", "replace").decode("utf-8"))
    return value


Text = Annotated[str, AfterValidator(printable)]
Plain = Annotated[dict[str, Any], AfterValidator(printable)]  # settings
Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = int | Finite | None
Values = list[Number]
Kind = Literal["gaussian", "categorical", "ranking"]
Counted = Literal["pixels", "samples", "values", "points"]
Columns = dict[str, Values]  # of a picture, by name
Byte = Annotated[int, Field(ge=0, le=255)]
RGB = tuple[Byte, Byte, Byte]


def counted_as(shape: Sequence[int]) -> Counted:
    """The name of the numbers in a target of this shape: samples for (n,), otherwise pixels."""
    return "samples" if math.prod(shape[1:]) == 1 and len(shape) < 3 else "pixels"


class Part(BaseModel):
    """A part of results. An unknown name in a file is an error."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    def as_json(self) -> str:
        """The text of a file with this part."""
        return numbers_in_lines(self.model_dump_json(indent=1)) + "\n"


class Stat(Part):
    """A metric over the draws of one M."""

    mean: Number
    std: Number
    n: int


class ClassStat(Part):
    """A metric of each class over the draws of one M."""

    mean: Values
    std: Values | None
    n: int


class Curve(Part):
    """A curve over the draws of one M, at the `x` of its family. draws: curves of evenly chosen draws."""

    mean: Values
    std: Values | None
    draws: list[Values] = []


class Curves(Part):
    """A family of curves: the common `x`, and for every M each curve by its name."""

    x: list[Finite]
    M: dict[int, dict[str, Curve]]


class Draw(Part):
    """All metrics of one draw of M members. A metric with a value for each class is a list.

    members: positions in the pool.
    """

    M: int
    members: list[int] = []
    metrics: dict[str, Number | Values]


Summary = dict[int, dict[Text, Stat | ClassStat]]  # by M and metric
CurveFamilies = dict[str, Curves]


class Tally(Part):
    """Numbers of pixels or samples: valid, masked, without label (ignored), and NaN or infinite (skipped)."""

    valid: int = 0
    masked: int = 0
    ignored: int = 0
    skipped: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in Tally.model_fields})


class Grid(Part):
    """Numbers as a 16-bit grey PNG: count times `scale` plus `offset`."""

    scale: Finite
    png: PictureField
    offset: Finite = 0.0


class Picture(Part):
    """An image of a domain and its target: numbers, or classes as an 8-bit grey PNG. photo: a JPEG."""

    image: int
    height: int
    width: int
    photo: PictureField
    sparse_depth: Grid | None = None
    target: Grid | PictureField


class PredictedPicture(Part):
    """Prediction of a draw of M members for an image: mean and std, or classes and their uncertainty."""

    image: int
    M: int
    mean: Grid | None = None
    std: Grid | None = None
    predicted: PictureField | None = None
    uncertainty: Grid | None = None


class ShownPicture(Picture):
    """An image of a domain with the predictions of methods."""

    methods: dict[str, PredictedPicture]


class ImageCost(Part):
    """Cost of one image with M members. Weights and operations that members share count once."""

    seconds: Number
    peak_bytes: Number
    flops: int | None = None
    weight_bytes: int | None = None


class TrainingCost(Part):
    """Cost of training M members: mean number of networks behind a draw of M, with their seconds and steps."""

    networks: Finite
    seconds: Finite
    steps: Finite


class PassCost(Part):
    """Seconds of an evaluation: forward passes of members, and draws with their metrics."""

    forward_seconds: Finite
    scoring_seconds: Finite


class Cost(Part):
    """Cost of a method. Toy problems have no cost per image.

    train_seconds: of all its networks. training: of the networks behind M members. flops: of one member on one image.
    """

    parameters: int
    train_seconds: Finite
    predict_seconds: Number = None
    flops: int | None = None
    image_size: list[int] | None = None
    per_image: dict[int, ImageCost] = {}
    training: dict[int, TrainingCost] = {}


class TrainingLog(Part):
    """The losses of one network over its training steps."""

    network: int
    steps: list[int]
    loss: Values


@dataclass(frozen=True)
class PoolSize:
    """The size of a pool; groups are networks or chains that each draw stays within.

    num_networks: trained networks behind the members; None if unknown, e.g. for stored predictions.
    """

    num_members: int
    num_groups: int | None = None
    num_networks: int | None = None
    plan: str = "random"


class Score(Part):
    """One method on one domain, under one set of evaluation settings and one post-processing.

    settings: the settings that decide values, e.g. precision, convention, uncertainty, window. source: the scored
    store, if any. overlap: mean share of members that two draws of M have in common. counted: the name of targets.
    """

    method: Text
    domain: Text
    settings: Plain
    post: Text = "none"
    kind: Kind
    unit: Text | None = None
    counted: Counted = "pixels"
    source: Text | None = None
    pool: PoolSize
    num_images: int | None = None
    pixels: Tally = Tally()
    notes: list[Text] = []
    overlap: dict[int, Number] = {}
    summary: Summary
    draws: list[Draw] = []
    curves: CurveFamilies = {}
    pictures: list[PredictedPicture] = []
    cost: PassCost | None = None


class MethodFacts(Part):
    """Facts about a method. members: network, snapshot and number of each member, in the order of the pool."""

    label: Text
    method: str
    num_networks: int | None = None
    plan: Text = "random"
    members: list[tuple[int, int, int]] = []
    notes: list[Text] = []
    cost: Cost | None = None
    training: list[TrainingLog] = []


class DomainFacts(Part):
    """Facts about a domain.

    classes: a sentence on the classes in common and the classes left out. notes: on images, e.g. which are absent.
    """

    label: Text
    role: Literal["in-domain", "shifted", "role unknown"]
    severity: Number = None
    class_names: list[Text] | None = None
    class_colours: list[RGB] | None = None
    classes: Text | None = None
    notes: list[Text] = []
    pictures: list[Picture] = []


def picture_files(*parts: Iterable[DomainFacts | Score]) -> Iterator[PictureFile]:
    """The files of the pictures of domains and scores."""
    for picture in (picture for part in chain(*parts) for picture in part.pictures):
        values = (value.png if isinstance(value, Grid) else value for _, value in picture)
        yield from (value for value in values if isinstance(value, PictureFile))


class ReferenceFacts(Part):
    """The reference of KLs.

    floor: the KL between its halves by convention, direction and region; null if infinite or unknown. converged: null
    if unknown. convergence: a sentence with the numbers.
    """

    path: Text | None
    about: Plain
    floor: dict[str, dict[str, dict[str, Number]]]
    notes: list[Text] = []
    converged: bool | None = None
    convergence: Text = ""


class ToyPictures(Part):
    """Truth, data, reference and predictions on a grid. methods: predictions of some draws by method and M."""

    grid: Columns
    truth: Columns
    data: Columns
    reference: Columns | None
    direct: Columns | None = None
    methods: dict[str, dict[int, list[Columns]]]


def _report_function(name: str) -> Any:
    """Import a function of the report on first use: the report imports this module."""
    module, _, function = name.rpartition(".")
    return getattr(import_module(f"epibench.report.{module}"), function)


class Results(Part):
    """Results of `run`, `evaluate` or `score`: a header, methods, domains, and scores, the newest evaluation first.

    recipe: the recipe, or the settings of `evaluate` and `score`. changes: settings that differ from the recipe of that
    name. In a notebook, results are shown as tables of the headline metrics.
    """

    version: Literal[2] = VERSION
    epibench: Text
    torch: Text
    python: Text = ""
    commit: Text | None = None
    device: Text = ""
    created: Text = ""
    seconds: Finite = 0.0
    recipe: Plain
    changes: list[Text] = []
    problem: Text
    convention: Text = "pooled"
    failed: dict[Text, Text] = {}
    data_versions: dict[str, str] = {}
    training_notes: list[Text] = []
    reference: ReferenceFacts | None = None
    toy: ToyPictures | None = None
    methods: dict[Text, MethodFacts]
    domains: dict[Text, DomainFacts]
    scores: list[Score]

    def as_json(self) -> str:
        """The text of a results file, which ends with a checksum."""
        return with_checksum(super().as_json())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a results file, and the pictures that it names into the folder `pictures` beside it.

        Pictures that the file has named before are removed, unless a JSON file in its folder still names them. A pipe
        or a device, e.g. /dev/stdout, gets no pictures.

        Args:
            path: the file.

        Raises:
            InputError: a picture of loaded results is missing or damaged.
        """
        path, pictures = Path(path), list(picture_files(self.domains.values(), self.scores))
        if path.exists() and not path.is_file():
            pictures = []
        replaced = names_in(path).difference(file.name for file in pictures)
        for file in pictures:
            file.write(path.parent)
        write_text(path, self.as_json())
        if replaced:
            remove_unnamed(replaced, path.parent)

    def computed(self) -> dict[str, Any]:
        """Return the computed content, to compare two results for equality.

        Returns:
            A dict of all fields except measured ones: time, memory, versions, device.
        """
        measured = {"epibench", "torch", "python", "commit", "device", "created", "seconds"}
        parts: dict[str, Any] = {"methods": {name: {"cost"} for name in self.methods}, "scores": {"__all__": {"cost"}}}
        return self.model_dump(mode="json", exclude={**dict.fromkeys(measured, True), **parts})

    def latest(self) -> list[Score]:
        """Return the scores of the newest evaluation, before post-processing."""
        scores, stored = [score for score in self.scores if score.post == "none"], "stored" in self.recipe
        return [score for score in scores if stored or score.settings == scores[0].settings]

    def score(self, method: str, domain: str) -> Score | None:
        """Return the newest score of a method on a domain.

        Args:
            method: a name in `methods`.
            domain: a name in `domains`.

        Returns:
            The score before post-processing; None if the newest evaluation has none.
        """
        return next((one for one in self.latest() if (one.method, one.domain) == (method, domain)), None)

    def frame(self, table: Literal["draws", "summary", "curves", "cost", "equivalents"] = "draws") -> Any:
        """Return a tidy table of all evaluations as a pandas DataFrame.

        Args:
            table: `draws` has a row for each method, domain, M, metric and draw; `summary` has mean, std and number of
                draws; `curves` a row for each point of a curve; `cost` a row for each quantity; `equivalents` the
                number of ensemble members that score as well.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            InputError: the table is unknown, or pandas is not installed.
        """
        return _report_function("tidy.frame")(self, table)

    def plot(self, name: str, domain: str | None = None, members: int | None = None, ax: Any = None) -> Any:
        """Plot a metric over M, the KL of a toy problem, or a curve at one M.

        Args:
            name: a metric, `kl`, or a curve: `coverage`, `reliability` (classes), `sparsification_error` (two methods
                or more).
            domain: may be left out if there is only one. `kl` takes none.
            members: the M of a curve; by default the largest M of each method.
            ax: axes to draw on; by default a new figure.

        Returns:
            The matplotlib `Axes`.

        Raises:
            InputError: the metric, curve, domain or M is unknown, or matplotlib is not installed.
        """
        return _report_function("notebook.plot")(self, name, domain, members, ax)

    def _repr_html_(self) -> str:
        return str(_report_function("notebook.html")(self))

    def __repr__(self) -> str:
        """Name, methods and domains; the numbers would fill pages."""
        name = self.recipe.get("name", self.problem)
        return f"Results({name}: {', '.join(self.methods)} on {', '.join(self.domains)})"

    __str__ = __repr__


def load_results(path: str | os.PathLike[str]) -> Results:
    """Load results that `run`, `evaluate` or `score` has written.

    Args:
        path: a folder with `results.json`, or a results file.

    Returns:
        The results.

    Raises:
        InputError: the file is missing, cannot be read, or holds no results of this version.
        DamagedError: the checksum of the file is missing or wrong (an `InputError`).
    """
    path = Path(path)
    file = path / RESULTS_NAME if path.is_dir() else path
    try:
        text = read_verified(file)
    except DamagedError as error:
        raise DamagedError(f"{error}. Fix: make it again with the command that wrote it.") from None
    except FileNotFoundError:
        what = f"holds no {RESULTS_NAME}: has the run finished?" if path.is_dir() else "there is no such file or folder"
        raise InputError(f"{path}: {what}") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}). Fix: give yourself read access.") from None
    return parse_results(text, str(file), file.parent.absolute())


def parse_results(text: bytes | str, where: str, folder: Path | None = None) -> Results:
    """Parse results from JSON. where: the name of the file in messages. folder: of the pictures."""
    try:
        return Results.model_validate_json(text, context=folder)
    except ValidationError as error:
        raise InputError(f"{where}: {_problem(text, error)}") from None


def _problem(text: bytes | str, error: ValidationError) -> str:
    """A message on results that cannot be read: not JSON, another version, or the first wrong field."""
    first = error.errors()[0]
    remedy = "remove the file and run the command again"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as invalid:
        return f"not a JSON file ({str(invalid).partition(chr(10))[0]}); {remedy}"
    if isinstance(found, dict) and found.get("version", VERSION) != VERSION:
        there = f"results of version {found['version']}; this epibench reads version {VERSION}"
        return f"{there}; install the one that wrote it, or {remedy}"
    if not isinstance(found, dict) or not isinstance(found.get("scores"), list):
        return f"not results (no 'scores'); {remedy}"
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"not results as this version writes them: {key}: {message}{more}; {remedy}"
