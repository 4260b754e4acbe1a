import fake
import pytest
from test_judge import GROUPS, entry, kl, pair

from epibench.report.entries import Entry
from epibench.report.figures import kl_chart
from epibench.report.run_page import distinct_floors
from epibench.report.runs import (
    VIEWS,
    domains_of,
    entries_on,
    kl_entries,
    methods_of,
    problem_of,
    read_runs,
)
from epibench.report.tables import kl_table
from epibench.report.verdicts import (
    Verdict,
    confidence_sentence,
    finding,
    gain_up_to,
    kl_verdict,
    member_gain,
    member_gains,
    shift_costs,
    verdict,
)
from epibench.results import Curve, Curves, PoolSize, Stat


def words(found: Verdict) -> str:
    return " ".join([found.card["headline"], *found.card["sentences"]]).replace("\u00a0", " ")


def kl_words(*entries: Entry) -> str:
    found = kl_verdict(entries)
    return " ".join([found["headline"], *found["sentences"]]).replace("\u00a0", " ")


def at_own_m(*of_m: tuple[int, float | None]) -> list[Entry]:
    return [entry(label, {m: (mean, 0.1, 4)}) for label, (m, mean) in zip("ABCDE", of_m, strict=False)]


LATE = {8: (1.0, 0.1, 9), 16: (1.0, None, 1)}, {8: (2.0, 0.1, 9), 16: (2.0, None, 1)}  # one draw at the largest M


@pytest.mark.parametrize(
    ("entries", "card", "found"),
    [
        (pair(1.2), ["A leads ", "20 % higher", "2.8 standard errors"], "A ranks errors best"),
        (pair(1.1), ["A leads, narrowly"], "narrowly"),
        (pair(1.2, None), ["A leads, not certain"], "not certain"),
        (pair(1.05), ["A and B: too close to call"], "told apart"),
        (pair(1.0008, 1e-6, bound=1e-3), ["numerical error"], "told apart"),
        (pair(0.6, random=0.5), ["chance"], "better than chance"),
        ([entry("AB"[i], LATE[i], PoolSize(16)) for i in (0, 1)], ["standard errors (from M = 8)"], "A ranks"),
        (at_own_m((4, 2.0)), ["2.00 ± 0.10", "4 draws"], "A has AUSE 2.00 ± 0.10."),
        (at_own_m((4, None)), ["No values"], "no values"),
        (at_own_m((4, 1.0), (8, 2.0)), ["M = 4 and M = 8"], "the largest M of each"),
        (at_own_m(*[(4, 1.0)] * 5), ["A, B, C and 2 more"], "told apart"),
    ],
)
def test_card_and_finding_say_who_leads_and_what_speaks_against_it(
    entries: list[Entry], card: list[str], found: str
) -> None:
    one = verdict("ause", entries)
    assert all(text in words(one) for text in card)
    assert found in finding([one])


def test_one_at_chance_does_not_take_the_lead_from_another() -> None:
    lucky = entry("lucky", {4: (1e-7, 1e-7, 4)}, random=1e-7, bound=8e-4)
    found = verdict("ause", [lucky, entry("real", {4: (0.2, 0.01, 4)}, random=0.8, bound=8e-4)])
    assert found.card["headline"] == "real leads"
    assert "lucky ranks errors no better than chance" in words(found)
    assert [bar["text"] for bar in found.card["bars"]] == ["0.200 ± 0.010", "< 0.0008"]
    assert [bar["note"].split()[0] for bar in found.card["bars"]] == ["chance", "chance"]


@pytest.mark.parametrize(
    ("mean", "start"),
    [
        (0.5, "At M = 4, single (M = 1) ranks errors best"),
        (1.01, "At M = 4, A and single (M = 1) cannot be told apart"),
        (2.0, "At M = 4, A ranks errors best"),
    ],
)
def test_a_method_of_one_member_is_named_with_its_own_m(mean: float, start: str) -> None:
    several = entry("A", {1: (1.1, 0.1, 4), 4: (1.0, 0.1, 4)})
    found = verdict("ause", [several, entry("single", {1: (mean, 0.1, 4)})])
    assert finding([found]).replace("\u00a0", " ").startswith(start)


def test_the_kl_of_a_single_method_says_what_it_is() -> None:
    found = kl_verdict([kl("MC-dropout", 0.3)])
    said = found["finding"].replace("\u00a0", " ")
    assert said.startswith("KL of MC-dropout to the reference at M = ")
    assert said.endswith(found["headline"].replace("\u00a0", " "))
    several = kl_verdict([kl("a", 0.3), kl("b", 0.9)])
    assert several["finding"] == several["headline"]


def test_kls_at_the_floor_are_not_ranked() -> None:
    found = kl_verdict([kl("a", 0.001), kl("b", 0.009)])
    assert found["headline"] == "a and b: at the noise floor"
    assert [row.cells[3].value for row in found["standings"].blocks[0].rows] == ["at the floor"] * 2


def test_ranks_are_shared_by_those_that_tie() -> None:
    found = kl_verdict([kl("a", 0.30, 0.1), kl("b", 0.32, 0.1), kl("c", 0.9, 0.1)])
    ranks = [row.cells[0].value.replace("\u00a0", " ") for row in found["standings"].blocks[0].rows]
    assert ranks == ["1 =", "1 =", "3"]
    table = kl_table("", [kl("a", 0.30, 0.1), kl("b", 0.32, 0.1), kl("c", 0.9, 0.1)])
    cells = [row.cells[1] for row in table.blocks[0].rows]
    assert [cell.best for cell in cells] == [False, False, False]
    assert [cell.tied for cell in cells] == [True, True, False]
    assert [row.cells[0].value for row in table.blocks[0].rows] == ["0.010"] * 3  # the floor


def infinite(label: str) -> Entry:
    stats = {"kl": Stat(mean=None, std=None, n=9), "kl_infinite": Stat(mean=2, std=None, n=9)}
    return fake.entry(label, {8: stats}, pool=GROUPS, floor=0.01)


def test_infinite_means_come_last_without_a_rank() -> None:
    found = kl_verdict([infinite("a"), kl("b", 0.5)])
    rows = found["standings"].blocks[0].rows
    assert [(row.name.label, row.cells[0].value) for row in rows] == [("b", "1"), ("a", "–")]
    assert "2 of 9 draws" in rows[1].remark
    assert kl_verdict([infinite("a")])["headline"] == "No finite KL"


def kl_over(label: str, means: dict[int, float], std: float = 0.01) -> Entry:
    summary = {m: {"kl": Stat(mean=mean, std=std, n=4)} for m, mean in means.items()}
    return fake.entry(label, summary, pool=GROUPS, floor=0.01)


def test_a_point_estimate_is_compared_at_its_only_m() -> None:
    found = kl_verdict([kl_over("map", {1: 2.0}), kl_over("b", {8: 0.9, 16: 0.5})])
    standings = found["standings"]
    assert standings.corner.replace("\u00a0", " ") == "At M = 16"
    remarks = [row.remark.replace("\u00a0", " ") for row in standings.blocks[0].rows]
    assert remarks == ["closest", "farther, at M = 1"]
    (row, _) = kl_table("", [kl_over("map", {1: 2.0}), kl_over("b", {8: 0.9, 16: 0.5})]).blocks[0].rows
    assert (row.cells[-1].value, row.cells[-1].spread, row.only) == ("2.000", "± 0.010", "M = 1")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([kl("a", 0.3), kl("b", 0.5)], ["a is closest ", "30 × the noise floor of 0.010", "20 × the noise floor"]),
        ([kl("a", 0.3), kl("b", 0.305)], ["a is closest, by less than the noise floor"]),
        ([kl("a", 0.3, None), kl("b", 0.9, None)], ["a is closest, not certain"]),
        ([kl("a", 0.3, floor=None)], ["no noise floor of the reference is known"]),
        ([kl_over("a", {8: 0.9, 16: 0.3}), kl_over("b", {8: 0.5, 16: 0.4})], ["At M = 8, b has the smallest mean."]),
    ],
)
def test_the_closest_method_stands_beside_the_floor(entries: list[Entry], said: list[str]) -> None:
    assert all(text in kl_words(*entries) for text in said)


@pytest.mark.parametrize(
    ("means", "reached"),
    [((0.9, 0.5, 0.3), "32, the largest"), ((0.9, 0.301, 0.3), "16"), ((0.302, 0.301, 0.3), "none")],
)
def test_the_m_up_to_which_there_is_a_gain(means: tuple[float, ...], reached: str) -> None:
    assert gain_up_to(kl_over("a", dict(zip((8, 16, 32), means, strict=True)))) == reached


def test_a_floor_far_below_is_named_and_not_drawn() -> None:
    entries = [kl_over("a", {8: 0.3, 16: 0.2})]
    near, far = (str(kl_chart(entries, VIEWS[0], [(floor, "noise floor")])) for floor in (0.01, 1e-6))
    assert 'class="floor"' in near
    assert 'class="floor"' not in far
    assert "below this chart" in far


def test_a_band_that_reaches_below_zero_stays_on_the_chart() -> None:
    chart = str(kl_chart([kl_over("a", {8: 0.3, 16: 0.2}, std=0.9)], VIEWS[0], []))
    assert "nan" not in chart
    assert "inf" not in chart


def test_floors_of_runs_are_named_once() -> None:
    methods = methods_of(read_runs([fake.regression(), fake.momentum()]))
    assert [floor for floor, _ in distinct_floors(methods, VIEWS[0])] == [0.018]
    assert len(kl_entries(methods, VIEWS[0])) == 9


def test_a_gain_has_both_values_its_judgement_and_its_reach() -> None:
    gain = member_gain(entry("A", {1: (2.0, 0.01, 4), 2: (1.08, 0.01, 4), 4: (1.0, 0.01, 4)}), "ause")
    assert (gain.spread, gain.word, gain.tone) == ("−50\u00a0%", "better", "good")
    assert gain.note == "90\u00a0% by M\u00a0=\u00a02"
    between = member_gain(entry("A", {1: (2.0, 0.01, 4), 2: (0.5, 0.01, 4), 4: (1.0, 0.01, 4)}), "ause")
    assert between.note == "best at M\u00a0=\u00a02: 0.500"


def test_the_hardest_shift_is_the_one_with_the_largest_error() -> None:
    results = fake.dense_run(domains=("clean", "wild-1", "wild"), members=(1, 2))
    for score in (score for score in results.scores if score.domain == "wild-1"):
        for metrics in score.summary.values():
            metrics["rmse"] = Stat(mean=99.0, std=0.0, n=4)
    assert [domain.name for domain in problem_of(read_runs([results])).first] == ["clean", "wild-1"]


def test_gains_and_costs_have_a_tone() -> None:
    runs = read_runs([fake.dense_run(domains=("clean", "wild"))])
    inside, outside = (entries_on(methods_of(runs), domain.name) for domain in domains_of(runs))
    tones = [[row.cells[0].tone for row in member_gains(entries, ["auce"])] for entries in (inside, outside)]
    assert tones == [["good", "good"], ["good", "bad"]]
    costs = shift_costs(inside, outside, ["rmse"])
    assert [row.cells[0].word for row in costs] == ["worse", "worse"]


def test_a_domain_that_a_method_lacks_has_no_entry_of_it() -> None:
    methods = methods_of(read_runs([fake.partial()]))
    assert [one.label for one in entries_on(methods, "wild")] == ["Ensembling"]


def confidence(area: float, signed: float, at_90: float | None = None) -> str:
    summary = {4: {"auce": Stat(mean=area, std=0.0, n=2), "auce_signed": Stat(mean=signed, std=0.0, n=2)}}
    coverage = Curves(x=[0.9], M={4: {"coverage": Curve(mean=[at_90], std=None)}})
    return confidence_sentence(fake.entry("a", summary, curves={"calibration": coverage} if at_90 is not None else {}))


def test_the_sign_of_the_area_tells_over_from_under() -> None:
    assert confidence(0.1, -0.1).startswith("is over-confident")
    assert confidence(0.1, 0.1).startswith("is under-confident")
    assert confidence(0.1, 0.01).startswith("is over-confident at some levels and under-confident at others")
    assert confidence(0.005, -0.005).startswith("is close to calibrated")


def test_a_90_percent_interval_that_contradicts_the_sign_makes_it_mixed() -> None:
    assert confidence(0.1, 0.1, at_90=0.95).startswith("is under-confident at M")
    assert confidence(0.1, 0.1, at_90=0.87).startswith("is over-confident at some levels and under-confident at others")


def test_classes_are_over_confident_where_confidence_exceeds_accuracy() -> None:
    runs = read_runs([fake.small("categorical")])
    (one, *_) = entries_on(methods_of(runs), "wild")
    assert confidence_sentence(one).startswith("is over-confident at M")


def of_classes(*bins: tuple[float, float, int]) -> str:
    """What is said of one draw; bins: confidence, accuracy and number of pixels."""
    names = ("confidence", "accuracy", "count")
    curves = {
        name: Curve(mean=list(values), std=None) for name, values in zip(names, zip(*bins, strict=True), strict=True)
    }
    reliability = Curves(x=[0.1 * number for number in range(len(bins))], M={1: curves})
    summary = {1: {"accuracy": Stat(mean=0.5, std=None, n=1)}}
    return confidence_sentence(fake.entry("a", summary, kind="categorical", curves={"reliability": reliability}))


def test_one_rule_for_classes_however_many_draws_there_are() -> None:
    assert of_classes((0.8, 0.6, 10), (0.9, 0.7, 30)).startswith("is over-confident at M")
    assert of_classes((0.3, 0.5, 10), (0.5, 0.6, 10)).startswith("is under-confident at M")
    # Over-confident above and under-confident below cancel in the mean, and are no calibration.
    assert of_classes((0.4, 0.6, 10), (0.9, 0.72, 10)).startswith("is over-confident at some levels")
    assert of_classes((0.4, 0.404, 10), (0.9, 0.898, 10)).startswith("is close to calibrated")
