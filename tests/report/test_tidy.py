"""Tidy tables hold every number of results, in full precision, and read back."""

import io
import math
import sys

import fake
import pandas
import pytest

from epibench.errors import InputError
from epibench.report.runs import read_runs
from epibench.report.tidy import COLUMNS, csv_text, rows_of
from epibench.results import Results


def read_back(table: str, results: Results) -> pandas.DataFrame:
    text = csv_text(table, rows_of(table, read_runs([results])))
    return pandas.read_csv(io.StringIO(text), float_precision="round_trip", keep_default_na=True)


def one(frame: pandas.DataFrame, **wanted: object) -> pandas.Series:
    for column, value in wanted.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_every_number_of_every_draw_is_a_row() -> None:
    results = fake.segmentation()
    frame = read_back("draws", results)
    numbers = [
        (score.method, score.domain, draw.M, metric, value)
        for score in results.scores
        for draw in score.draws
        for metric, given in draw.metrics.items()
        for value in (given if isinstance(given, list) else [given])
    ]
    assert list(frame.columns) == list(COLUMNS["draws"])
    assert len(frame) == len(numbers)
    found = list(zip(frame["method"], frame["domain"], frame["M"], frame["metric"], frame["value"], strict=True))
    for (*keys, value), (*wanted, number) in zip(found, numbers, strict=True):
        assert keys == wanted
        assert math.isnan(value) if number is None else value == number  # every digit


def test_draws_are_counted_for_each_method_domain_and_m() -> None:
    frame = read_back("draws", fake.depth())
    counted = frame[frame["metric"] == "rmse"].groupby(["method", "domain", "M"])["draw"]
    assert all(sorted(of_one) == list(range(len(of_one))) for _, of_one in counted)
    assert not frame.duplicated(["method", "domain", "M", "draw", "metric", "class"]).any()


def test_classes_have_numbers_and_names() -> None:
    frame = read_back("summary", fake.three_categorical())
    row = one(frame, method="sghmc", M=4, metric="iou_per_class", class_name="car")
    score = fake.three_categorical().scores[1]
    number = fake.CITYSCAPES.index("car")
    assert row["class"] == number
    assert row["mean"] == score.summary[4]["iou_per_class"].mean[number]
    assert frame[frame["metric"] == "miou"]["class"].isna().all()


def test_summaries_of_scored_files() -> None:
    results = fake.two_gaussian()
    row = one(read_back("summary", results), method="mc_dropout", M=2, metric="rmse")
    stat = results.scores[1].summary[2]["rmse"]
    assert (row["mean"], row["std"], row["n"]) == (stat.mean, stat.std, stat.n)
    assert (row["source"], row["domain"], row["target_unit"]) == ("preds/mc_dropout.zarr", "wild", "m")


def test_kl_has_a_metric_of_its_own_for_each_direction_and_convention() -> None:
    results = fake.regression()
    summary = read_back("summary", results)
    keys = {"method": "sgld", "domain": "train", "M": 64}
    pooled, published = (one(summary, **keys, metric=name) for name in ("kl", "kl_reverse_gustafsson2020"))
    score = fake.score(results, "sgld", "train")
    assert pooled["mean"] == score.summary[64]["kl"].mean
    assert published["mean"] == score.summary[64]["kl_reverse_gustafsson2020"].mean
    assert (pooled["convention"], published["convention"]) == ("pooled", "gustafsson2020")
    draws = read_back("draws", results)
    mine = draws[(draws["metric"] == "kl") & (draws["method"] == "sgld")]
    values = mine[(mine["domain"] == "train") & (mine["M"] == 64)]["value"]
    assert list(values) == [draw.metrics["kl"] for draw in score.draws if draw.M == 64]


def test_a_metric_as_published_is_of_that_convention() -> None:
    results = fake.depth()
    for draw in results.scores[0].draws:
        draw.metrics["rmse_gustafsson2020"] = 1.0
    frame = read_back("draws", results)
    assert set(frame[frame["metric"] == "rmse_gustafsson2020"]["convention"]) == {"gustafsson2020"}
    assert set(frame[frame["metric"] == "rmse"]["convention"]) == {"pooled"}


def test_curves_point_by_point() -> None:
    results = fake.depth()
    frame = read_back("curves", results)
    mine = frame[(frame["method"] == "ensemble") & (frame["domain"] == "clean") & (frame["M"] == 4)]
    mine = mine[mine["curve"] == "coverage"]
    curves = fake.score(results, "ensemble", "clean").curves["calibration"]
    assert list(mine["x"]) == curves.x
    assert list(mine["mean"]) == curves.M[4]["coverage"].mean
    assert list(mine["std"]) == curves.M[4]["coverage"].std


def test_cost_by_quantity() -> None:
    results = fake.depth()
    frame, cost = read_back("cost", results), results.methods["ensemble"].cost
    assert cost is not None
    assert one(frame, method="ensemble", quantity="parameters")["value"] == cost.parameters
    assert one(frame, method="ensemble", quantity="seconds_per_image", M=4)["value"] == cost.per_image[4].seconds
    assert one(frame, method="mc_dropout", quantity="flops_per_image", M=4)["value"] == 2.5 * cost.flops
    assert one(frame, method="mc_dropout", quantity="weight_bytes", M=4)["value"] == 4 * cost.parameters
    assert one(frame, method="ensemble", quantity="training_steps", M=4)["value"] == 4 * 4000
    assert one(frame, method="mc_dropout", quantity="training_seconds", M=4)["value"] == 410
    assert read_back("cost", fake.two_gaussian()).empty


def test_a_number_that_is_not_known_is_an_empty_cell() -> None:
    results = fake.three_categorical()  # the worst has an infinite NLL at M = 1
    text = csv_text("summary", rows_of("summary", read_runs([results])))
    line = next(line for line in text.splitlines() if ",mc_dropout," in line and ",1,nll," in line)
    assert line.endswith(",,,8")


def test_names_with_commas_and_line_breaks_stay_in_their_cells() -> None:
    results = fake.results(fake.scored_file("a,b\nc.npz", method='an "ensemble", mine'))
    frame = read_back("summary", results)
    assert set(frame["method"]) == {'an "ensemble", mine'}


@pytest.mark.parametrize("table", COLUMNS)
def test_a_frame_is_the_same_table(table: str) -> None:
    results = fake.depth()
    frame = results.frame(table)
    assert list(frame.columns) == list(COLUMNS[table])
    assert len(frame) == len(list(rows_of(table, read_runs([results]))))


def test_a_frame_has_types_to_count_and_to_compute_with() -> None:
    frame = fake.three_categorical().frame()
    assert (str(frame["M"].dtype), str(frame["class"].dtype), str(frame["value"].dtype)) == (
        "Int64",
        "Int64",
        "float64",
    )
    means = frame[frame["metric"] == "miou"].groupby(["method", "M"])["value"].mean()
    assert means["ensemble", 8] == pytest.approx(fake.three_categorical().scores[0].summary[8]["miou"].mean)


def test_without_pandas_one_line_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"^frame\(\) needs the package pandas: pip install pandas$"):
        fake.regression().frame()


def test_an_unknown_table_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        InputError, match=r"^frame\('scores'\): there is no such table; give draws, summary, curves, cost, equivalents$"
    ):
        fake.regression().frame("scores")
