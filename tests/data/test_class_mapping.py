"""Common classes of a model and a domain: components of the pairs, and targets counted as those."""

import pickle

import pytest
import torch

from epibench.data.batch import Batch
from epibench.data.cityscapes_classes import CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS
from epibench.data.class_mapping import MAPPINGS, Relabelled, common_classes
from epibench.data.classes import IGNORE, table_of_names
from epibench.data.sets.camvid import CAMVID_COLOURS, CAMVID_IDS
from epibench.errors import InputError


def table(*names):
    return table_of_names(names)


def test_the_same_classes_are_what_they_are():
    for model, domain in ((CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS), (table("a", "b"), table("a", "b"))):
        common = common_classes(model, domain)
        assert common.identity
        assert (common.names, common.colours) == (domain.names, domain.colours)
        assert common.groups == tuple((number,) for number in range(domain.num_classes))
        assert common.targets == tuple(range(domain.num_classes))


@pytest.mark.parametrize(
    ("model", "domain"),
    [
        (table("a", "b"), table("b", "a")),
        (table("a", "b", "c"), table("a", "b")),  # whose prediction of c must be left out
        (table("a", "b"), table("a", "b", "c")),
    ],
)
def test_other_orders_and_numbers_are_not_the_same(model, domain):
    assert not common_classes(model, domain).identity


def test_components():
    model, domain = (
        table("road", "person", "rider", "bike", "dog", "wall"),
        table("bicyclist", "house", "human", "street"),
    )
    pairs = [("road", "street"), ("rider", "bicyclist"), ("bike", "bicyclist"), ("person", "human")]
    common = common_classes(model, domain, pairs)
    assert common.names == ("street", "human", "bicyclist")
    assert common.groups == ((0,), (1,), (2, 3))
    assert common.targets == (2, IGNORE, 1, 0)
    assert common.colours == tuple(domain.colours[number] for number in (3, 2, 0))
    assert (
        common.about == "3 common classes by the given mapping; left out: dog, wall of the model; house of the domain"
    )


def test_chains_of_pairs_become_one_class():
    pairs = [("a", "x"), ("c", "z"), ("b", "x"), ("b", "y"), ("c", "y")]
    common = common_classes(table("a", "b", "c"), table("x", "y", "z"), pairs)
    assert (common.names, common.groups, common.targets) == (("x+y+z",), ((0, 1, 2),), (0, 0, 0))


def test_several_of_the_domain_are_called_as_the_model_does():
    model = table("vehicle", "sky")
    common = common_classes(model, table("car", "bus", "sky"), [("vehicle", "car"), ("vehicle", "bus"), ("sky", "sky")])
    assert common.names == ("vehicle", "sky")
    assert common.targets == (0, 0, 1)
    assert common.colours[0] == model.colours[0]


def test_names_stay_different():
    pairs = [("car", "van"), ("car", "bus"), ("auto", "car")]
    common = common_classes(table("car", "auto"), table("van", "bus", "car"), pairs)
    assert len(set(common.names)) == 2


@pytest.mark.parametrize("pairs", MAPPINGS.values(), ids=map("-".join, MAPPINGS))
def test_built_in_tables_use_every_class_once(pairs):
    model, domain = ([pair[side] for pair in pairs] for side in (0, 1))
    assert {frozenset(model), frozenset(domain)} == {frozenset(CAMVID_IDS.names), frozenset(CITYSCAPES_TRAIN_IDS.names)}
    assert len(set(pairs)) == len(pairs)


def test_cityscapes_on_camvid():
    common = common_classes(CITYSCAPES_TRAIN_IDS, CAMVID_COLOURS)
    assert sorted(common.names) == sorted(CAMVID_IDS.names)
    groups = dict(zip(common.names, common.groups, strict=True))
    names = CITYSCAPES_TRAIN_IDS.names
    assert [names[number] for number in groups["car"]] == ["car", "truck", "bus", "train"]
    assert [names[number] for number in groups["sign"]] == ["traffic light", "traffic sign"]
    assert [names[number] for number in groups["pedestrian"]] == ["person"]
    assert [common.names[number] for number in common.targets] == list(CAMVID_IDS.names)
    assert common.about == "11 common classes by the built-in table cityscapes → camvid"


def test_camvid_on_cityscapes():
    common = common_classes(CAMVID_IDS, CITYSCAPES_LABEL_IDS)
    assert common.groups == tuple((number,) for number in range(11))
    target = dict(zip(CITYSCAPES_LABEL_IDS.names, (common.names[number] for number in common.targets), strict=True))
    assert target["truck"] == target["car"] == "car"
    assert (target["person"], target["rider"], target["sidewalk"]) == ("person", "bicyclist", "sidewalk")


def test_known_classes_are_told_by_their_names():
    own = table(*CAMVID_IDS.names)
    assert common_classes(CITYSCAPES_TRAIN_IDS, own).names == common_classes(CITYSCAPES_TRAIN_IDS, CAMVID_IDS).names


def test_otherwise_equal_names_are_common():
    common = common_classes(CITYSCAPES_TRAIN_IDS, table("cow", "sky", "road"))
    assert (common.names, common.groups, common.targets) == (("road", "sky"), ((0,), (10,)), (IGNORE, 1, 0))
    assert common.about.startswith("2 common classes by equal names; left out: sidewalk, building, wall")
    assert common.about.endswith("; cow of the domain")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("rood", "x")], r"mapping rood → x: the model has no class 'rood'; the nearest is 'road'"),
        ([("road", "xx")], r"mapping road → xx: the domain has no class 'xx'; the nearest is 'x'"),
        ([], "has no pair; give at least one"),
        (None, r"model \(road, sky\) and of the domain \(x, y\) share no name, .* give the domain a mapping"),
    ],
)
def test_what_cannot_be_mapped(pairs, message):
    with pytest.raises(InputError, match=message) as caught:
        common_classes(table("road", "sky"), table("x", "y"), pairs)
    assert "\n" not in str(caught.value)


class Samples:
    """One sample with every class; what is not valid holds anything."""

    classes = table("a", "b", "c")

    def __len__(self):
        return 1

    def __getitem__(self, index):
        target = torch.tensor([[0, 1, 2, 255, 1, -7]])
        return Batch({"image": torch.zeros(3, 1, 6)}, target, torch.tensor([[True, True, True, False, False, False]]))

    def frame_id(self, index):
        return f"frame {index}"


def test_targets_become_common_classes():
    common = common_classes(table("B", "A"), Samples.classes, [("A", "a"), ("B", "b")])
    relabelled = pickle.loads(pickle.dumps(Relabelled(Samples(), common)))  # noqa: S301
    batch = relabelled[0]
    assert batch.target.dtype == torch.int64
    assert batch.target.tolist() == [[1, 0, IGNORE, IGNORE, IGNORE, IGNORE]]
    assert batch.valid.tolist() == [[True, True, False, False, False, False]]
    assert batch.inputs["image"].shape == (3, 1, 6)
    assert (len(relabelled), relabelled.frame_id(0), relabelled.classes.names) == (1, "frame 0", ("b", "a"))
    assert relabelled.classes.colours == common.colours
