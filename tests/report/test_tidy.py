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


def read_back(table, results):
    text = csv_text(table, rows_of(table, read_runs([results])))
    return pandas.read_csv(io.StringIO(text), float_precision="round_trip", keep_default_na=True)


def chosen(frame, **wanted):
    for column, value in wanted.items():
        frame = frame[frame[column] == value]
    return frame


def one(frame, **wanted):
    found = chosen(frame, **wanted)
    assert len(found) == 1
    return found.iloc[0]


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
    found = list(zip(frame["method"], frame["domain"], frame["M"], frame["metric"], frame["value"], strict=True))
    for (*keys, value), (*wanted, number) in zip(found, numbers, strict=True):
        assert keys == wanted
        assert math.isnan(value) if number is None else value == number  # every digit
    counted = frame[frame["metric"] == "miou"].groupby(["method", "domain", "M"])["draw"]
    assert all(sorted(of_one) == list(range(len(of_one))) for _, of_one in counted)
    assert not frame.duplicated(["method", "domain", "M", "draw", "metric", "class"]).any()


def test_summaries_have_units_and_names_of_classes() -> None:
    results = fake.two_gaussian()
    row = one(read_back("summary", results), method="mc_dropout", M=2, metric="rmse")
    stat = results.scores[1].summary[2]["rmse"]
    assert (row["mean"], row["std"], row["n"]) == (stat.mean, stat.std, stat.n)
    assert (row["source"], row["domain"], row["target_unit"]) == ("preds/mc_dropout.zarr", "wild", "m")
    results, number = fake.three_categorical(), fake.CITYSCAPES.index("car")
    frame = read_back("summary", results)
    row = one(frame, method="sghmc", M=4, metric="iou_per_class", class_name="car")
    assert row["class"] == number
    assert row["mean"] == results.scores[1].summary[4]["iou_per_class"].mean[number]
    assert frame[frame["metric"] == "miou"]["class"].isna().all()


def test_each_kl_has_a_metric_and_metrics_as_published_have_that_convention() -> None:
    results = fake.regression()
    summary = read_back("summary", results)
    keys, score = {"method": "sgld", "domain": "train"}, fake.score(results, "sgld", "train")
    for name, convention in (("kl", "pooled"), ("kl_reverse_gustafsson2020", "gustafsson2020")):
        row = one(summary, **keys, M=64, metric=name)
        assert (row["mean"], row["convention"]) == (score.summary[64][name].mean, convention)
    mine = chosen(read_back("draws", results), **keys, M=64, metric="kl")
    assert list(mine["value"]) == [draw.metrics["kl"] for draw in score.draws if draw.M == 64]


def test_curves_point_by_point() -> None:
    results = fake.depth()
    mine = chosen(read_back("curves", results), method="ensemble", domain="clean", M=4, curve="coverage")
    curves = fake.score(results, "ensemble", "clean").curves["calibration"]
    assert list(mine["x"]) == curves.x
    assert list(mine["mean"]) == curves.M[4]["coverage"].mean
    assert list(mine["std"]) == curves.M[4]["coverage"].std


def test_cost_by_quantity() -> None:
    results = fake.depth()
    frame, cost = read_back("cost", results), results.methods["ensemble"].cost
    assert one(frame, method="ensemble", quantity="parameters")["value"] == cost.parameters
    for method, quantity, value in (
        ("ensemble", "seconds_per_image", cost.per_image[4].seconds),
        ("mc_dropout", "flops_per_image", 2.5 * cost.flops),
        ("mc_dropout", "weight_bytes", 4 * cost.parameters),
        ("ensemble", "training_steps", 4 * 4000),
        ("mc_dropout", "training_seconds", 410),
    ):
        assert one(frame, method=method, quantity=quantity, M=4)["value"] == value
    assert read_back("cost", fake.two_gaussian()).empty


def test_a_number_that_is_not_known_is_an_empty_cell() -> None:
    results = fake.three_categorical()  # the worst has an infinite NLL at M = 1
    text = csv_text("summary", rows_of("summary", read_runs([results])))
    line = next(line for line in text.splitlines() if ",mc_dropout," in line and ",1,nll," in line)
    assert line.endswith(",,,8")


def test_names_with_commas_and_line_breaks_stay_in_their_cells() -> None:
    results = fake.results(fake.scored_file("a,b\nc.npz", method='an "ensemble", mine'))
    assert set(read_back("summary", results)["method"]) == {'an "ensemble", mine'}


@pytest.mark.parametrize("table", COLUMNS)
def test_a_frame_is_the_same_table(table) -> None:
    results = fake.depth()
    frame = results.frame(table)
    assert list(frame.columns) == list(COLUMNS[table])
    assert len(frame) == len(list(rows_of(table, read_runs([results]))))


def test_a_frame_has_types_to_count_and_to_compute_with() -> None:
    frame = fake.three_categorical().frame()
    assert [str(frame[name].dtype) for name in ("M", "class", "value")] == ["Int64", "Int64", "float64"]
    means = frame[frame["metric"] == "miou"].groupby(["method", "M"])["value"].mean()
    assert means["ensemble", 8] == pytest.approx(fake.three_categorical().scores[0].summary[8]["miou"].mean)


def test_an_unknown_table_and_missing_pandas_are_one_line(monkeypatch) -> None:
    tables = "draws, summary, curves, cost, equivalents"
    with pytest.raises(InputError, match=rf"^frame\('scores'\): there is no such table; give {tables}$"):
        fake.regression().frame("scores")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"^frame\(\) needs the package pandas: pip install pandas$"):
        fake.regression().frame()
