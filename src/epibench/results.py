"""Results as typed data: what `score` and runs write, what the report reads, and what tests build.

A number that is not finite is null. Keys that are numbers are strings in the files. A standard deviation is the
population's over draws, and null for one draw.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from epibench.errors import InputError
from epibench.files import DamagedError, numbers_in_lines, read_verified, with_checksum

VERSION: Final = 1
RESULTS_NAME = "results.json"
QUICK = "-quick"  # how the names of recipes end that are a smaller variant of another
# Toy problems: where training data comes from, which is the region `train` of KLs, and the circle between the classes.
TRAIN_REGION = {"toy-regression": ((-3.0, 3.0),), "toy-classification": ((0.0, 3.0), (-3.0, 3.0))}
RADIUS = 2.4
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


def printable(value: Any) -> Any:
    """The value, its texts without what HTML cannot hold: control characters, halves of surrogate pairs."""
    if isinstance(value, dict):
        return {printable(key): printable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [printable(inner) for inner in value]
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value.encode("utf-8", "replace").decode("utf-8"))
    return value


Text = Annotated[str, AfterValidator(printable)]
Plain = Annotated[dict[str, Any], AfterValidator(printable)]  # settings as they were given
Finite = Annotated[float, Field(allow_inf_nan=False)]
Number = int | Finite | None
Values = list[Number]
Kind = Literal["gaussian", "categorical", "ranking"]
Counted = Literal["pixels", "samples", "values", "points"]
Columns = dict[str, Values]  # of a picture, by name
Byte = Annotated[int, Field(ge=0, le=255)]
RGB = tuple[Byte, Byte, Byte]


def counted_as(shape: Sequence[int]) -> Counted:
    """What one number of a target of this shape is called: pixels of (image, height, width), samples of (n,).

    Of (n, k), k targets of every sample, and of anything else it is values. Toy problems have points.
    """
    if len(shape) == 3:
        return "pixels"
    return "samples" if math.prod(shape[1:]) == 1 else "values"


class Part(BaseModel):
    """A part of results. A name that is not known is an error, so that files and tests cannot drift."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    def as_json(self) -> str:
        """The text of a file that holds them."""
        return numbers_in_lines(self.model_dump_json(indent=1)) + "\n"


class GrownPart(Part):
    """A part with fields that an earlier version did not write.

    They are left out where they say nothing, so that what that version wrote keeps its checksum.
    """

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in self.later:
            if getattr(self, name) == type(self).model_fields[name].default:
                written.pop(name, None)
        return written


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


class Curve(GrownPart):
    """A curve over the draws of one M, at the `x` of its family; draws: of some draws, evenly chosen from all."""

    mean: Values
    std: Values | None
    draws: list[Values] | None = None
    later = ("draws",)


class Curves(Part):
    """A family of curves: the common abscissa, and for every M each curve by its name."""

    x: list[Finite]
    M: dict[int, dict[str, Curve]]


class Draw(Part):
    """All metrics of one draw of M members; metrics with a value for each class are lists."""

    M: int
    metrics: dict[str, Number | Values]


class ScoredDraw(Draw):
    """A draw from stored predictions, which also says which members it has, by position from 0."""

    members: list[int]


Summary = dict[int, dict[Text, Stat | ClassStat]]  # by M and metric
CurveFamilies = dict[str, Curves]


class Tally(Part):
    """What became of pixels or samples: used, or dropped because masked, without label, or NaN or infinite."""

    valid: int = 0
    masked: int = 0
    ignored: int = 0
    skipped: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: getattr(self, name) + getattr(other, name) for name in Tally.model_fields})


class FileResults(Part):
    """What came out of one file of stored predictions."""

    path: Text
    method: Text | None
    domain: Text | None
    kind: Kind
    unit: Text | None
    class_names: list[Text] | None
    target_names: list[Text] | None = None
    num_members: int
    num_groups: int | None
    counted: Counted = "pixels"
    pixels: Tally
    plan: Text
    uncertainty: Text
    sparsification: Literal["exact", "streamed"]
    notes: list[Text]
    overlap: dict[int, Number]
    draws: list[ScoredDraw]
    summary: Summary
    curves: CurveFamilies
    pictures: list[Picture] = []


def _shown_by(function: str) -> Any:
    """A function of the report, which stands above results: found by its name, when results are to be shown."""
    module, _, name = function.rpartition(".")
    return getattr(import_module(f"epibench.report.{module}"), name)


class Shown(Part):
    """Results that a notebook shows, plots and takes as a table."""

    def as_json(self) -> str:
        """The text of a file that holds them, with its checksum."""
        return with_checksum(super().as_json())

    def frame(self, table: Literal["draws", "summary", "curves", "cost", "equivalents"] = "draws") -> Any:
        """A tidy table as a pandas DataFrame: one row for each method, domain, M, metric and draw.

        `summary` has their mean, std and number, `curves` a row for each point of a curve, `cost` one for each
        quantity, `equivalents` how many members of an ensemble score as a method does.
        """
        return _shown_by("tidy.frame")(self, table)

    def plot(self, name: str, domain: str | None = None, members: int | None = None) -> Any:
        """A metric over M, `kl`, or a curve at an M, as a drawing.

        Curves: `coverage`, of classes `reliability`, of several methods `sparsification_error`. A notebook shows it;
        `save(path)` writes it as .svg or .pdf. domain: may be left out where there is one; members: the M of a curve,
        by default the largest of each method.
        """
        return _shown_by("notebook.plot")(self, name, domain, members)

    def _repr_html_(self) -> str:
        return str(_shown_by("notebook.html")(self))

    def __repr__(self) -> str:
        """What they are of; all numbers would fill a hundred pages."""
        if isinstance(self, RunResults):
            name = self.recipe.get("name", self.problem)
            return f"RunResults({name}: {', '.join(self.methods)} on {', '.join(self.domains) or self.problem})"
        return f"{type(self).__name__}({', '.join(str(each.path) for each in getattr(self, 'files', []))})"

    __str__ = __repr__


class ScoreResults(Shown):
    """What `epibench score --json` writes."""

    version: Literal[1] = VERSION
    epibench: Text
    torch: Text
    convention: Text
    settings: Plain
    in_domain: Text | None = None
    files: list[FileResults]


class MethodFacts(Part):
    """What a reader should know of a method before its numbers."""

    label: Text
    method: str
    num_networks: int
    num_members: int
    num_groups: int | None
    plan: Text
    notes: list[Text] = []


class DomainFacts(Part):
    """What a reader should know of a domain before its numbers.

    classes: in words, what is common and what left out; notes: on its images, e.g. which of the selected are absent.
    """

    label: Text
    role: Literal["in-domain", "shifted", "role unknown"]
    severity: Number = None
    num_images: int | None = None
    num_pixels: int | None = None
    class_names: list[Text] | None = None
    class_colours: list[RGB] | None = None
    classes: Text | None = None
    notes: list[Text] = []


class ReferenceFacts(GrownPart):
    """The reference that KLs are to.

    floor: the KL between its halves, by convention, direction and region; null: infinite or unknown. converged: null:
    unknown; convergence: the same in words, with its numbers.
    """

    path: Text | None
    about: Plain
    floor: dict[str, dict[str, dict[str, Number]]]
    notes: list[Text] = []
    converged: bool | None = None
    convergence: Text = ""
    later = ("converged", "convergence")


class ImageCost(GrownPart):
    """What one image costs with M members; their weights and operations are counted, what they share once."""

    seconds: Number
    peak_bytes: Number
    flops: int | None = None
    weight_bytes: int | None = None
    later = ("flops", "weight_bytes")


class TrainingCost(Part):
    """What M members take to train: networks behind a draw of M, in the mean over draws, and what these took."""

    networks: Finite
    seconds: Finite
    steps: Finite


class PassCost(Part):
    """Where the time of an evaluation went: members, and draws with their metrics."""

    forward_seconds: Finite
    scoring_seconds: Finite


class Cost(GrownPart):
    """What a method costs; what is only known of images is missing for toy problems.

    train_seconds: of all its networks; training: of those behind M members. flops: of one member on one image.
    """

    parameters: int
    train_seconds: Finite
    predict_seconds: Number = None
    flops: int | None = None
    image_size: list[int] | None = None
    per_image: dict[int, ImageCost] = {}
    evaluation: dict[str, PassCost] = {}
    training: dict[int, TrainingCost] = {}
    later = ("training",)


class TrainingLog(Part):
    """The losses of one network over its steps."""

    network: int
    steps: list[int]
    loss: Values


class ToyPictures(Part):
    """Predictions to be drawn: on a grid, beside truth, data and reference; of some draws by method and M."""

    grid: Columns
    truth: Columns
    data: Columns
    reference: Columns | None
    direct: Columns | None = None
    methods: dict[str, dict[int, list[Columns]]]


class Grid(GrownPart):
    """Numbers as base64 of a 16-bit grey PNG, in counts of `scale` above `offset`."""

    scale: Finite
    png: str
    offset: Finite = 0.0
    later = ("offset",)


class PredictedPicture(Part):
    """What a draw of M members predicts for an image: mean and std of depth, or classes and their uncertainty."""

    M: int
    mean: Grid | None = None
    std: Grid | None = None
    predicted: str | None = None
    uncertainty: Grid | None = None


class Picture(Part):
    """An image of a domain, what is known of it, and what each method predicts; classes are 8-bit grey PNGs."""

    image: int
    height: int
    width: int
    photo: str
    sparse_depth: Grid | None = None
    target: Grid | str
    methods: dict[str, PredictedPicture]


class DomainResults(Part):
    """What came out of one method on one domain."""

    num_images: int
    num_pixels: int
    summary: Summary
    curves: CurveFamilies
    draws: list[Draw]
    pictures: list[Picture]  # with this method alone
    cost: PassCost


KL = dict[str, dict[str, dict[str, dict[int, Stat]]]]  # by convention, direction, region and M
KLDraws = dict[str, dict[str, dict[str, dict[int, Values]]]]


class RunResults(GrownPart, Shown):
    """What a run writes; `kl`, `kl_draws` and `reference` are of toy problems, `domains` and what follows of images."""

    version: Literal[1] = VERSION
    epibench: Text
    torch: Text
    python: Text
    commit: Text | None
    device: Text
    created: Text
    recipe: Plain
    changes: list[Text]
    problem: Text
    kind: Kind
    methods: dict[Text, MethodFacts]
    summary: dict[str, dict[str, Summary]]
    curves: dict[str, dict[str, CurveFamilies]]
    draws: dict[str, dict[str, list[Draw]]]
    pictures: ToyPictures | dict[str, list[Picture]]
    cost: dict[str, Cost]
    failed: dict[Text, Text] = {}
    seconds: Finite

    kl: dict[str, KL] = {}
    kl_draws: dict[str, KLDraws] = {}
    reference: ReferenceFacts | None = None

    convention: Text = "pooled"
    unit: Text | None = None
    counted: Counted = "pixels"
    class_names: list[Text] | None = None
    class_colours: list[RGB] | None = None
    data_versions: dict[str, str] = {}
    training_notes: list[Text] = []
    domains: dict[Text, DomainFacts] = {}
    overlap: dict[str, dict[int, Number]] = {}
    training: dict[str, list[TrainingLog]] = {}
    later = ("counted",)


FileResults.model_rebuild()  # pictures are described after it
ScoreResults.model_rebuild()
Results = TypeVar("Results", bound=Part)


def load_results(path: str | os.PathLike[str]) -> RunResults:
    """The results of a run, from its folder or from its results.json."""
    path = Path(path)
    file = path / RESULTS_NAME if path.is_dir() else path
    return parse_results(RunResults, _read(path, file), str(file))


def load_any_results(path: Path) -> RunResults | ScoreResults:
    """The results of a run, or those that `epibench score --json` wrote."""
    file = path / RESULTS_NAME if path.is_dir() else path
    text = _read(path, file)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None  # which is said when it is parsed
    if isinstance(content, dict) and "files" in content and "methods" not in content:
        return parse_results(ScoreResults, text, str(file))
    return parse_results(RunResults, text, str(file))


def _read(path: Path, file: Path) -> bytes:
    try:
        return read_verified(file)
    except DamagedError as error:
        raise DamagedError(f"{error}. Fix: make it again with the command that wrote it.") from None
    except FileNotFoundError:
        what = f"holds no {RESULTS_NAME}: has the run finished?" if path.is_dir() else "there is no such file or folder"
        raise InputError(f"{path}: {what}") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}). Fix: give yourself read access.") from None


def parse_results(model: type[Results], text: bytes | str, where: str) -> Results:
    """Results from JSON; what is none, or of another version, is refused in one line. where: what to call it there."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InputError(f"{where}: {_problem(model, text, error)}") from None


def _problem(model: type[Part], text: bytes | str, error: ValidationError) -> str:
    """What is wrong with results, in words: another version, or the first thing that does not fit."""
    first = error.errors()[0]
    remedy = "remove the file and run the command again"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as invalid:
        return f"not a JSON file ({str(invalid).partition(chr(10))[0]}); {remedy}"
    if isinstance(found, dict) and found.get("version", VERSION) != VERSION:
        there = f"results of version {found['version']}; this epibench reads version {VERSION}"
        return f"{there}; install the one that wrote it, or {remedy}"
    if model is RunResults and (
        not isinstance(found, dict) or "files" in found or not isinstance(found.get("methods"), dict)
    ):
        return f"not the results of a run (no 'methods'): pages of scores come from epibench score, otherwise {remedy}"
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"not results as this version writes them: {key}: {message}{more}; {remedy}"
