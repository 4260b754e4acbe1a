"""Synscapes: the published selection, one in a file or one that a seed decides, and labels at the images' size."""

import os

import numpy as np
import pytest
import torch
from silent_reporter import Silent

from epibench.data.cityscapes_classes import label_ids
from epibench.data.sets import synscapes as module
from epibench.data.sets.synscapes import SynscapesSource, published_ids
from epibench.errors import InputError
from epibench.runs.folder import RunFolder
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.machine import Machine, Run
from label_files import random_values, save, save_image
from named_recipes import recipe_of


def synscapes(root, split="train", **options):
    return SynscapesSource(root=str(root), split=split, **options).read()


def at_random(root, split, num_train, num_val, **options):
    return synscapes(root, split, selection="random", num_train=num_train, num_val=num_val, **options)


def make(root, scenes=20, images=("rgb-2k", "rgb"), base="img"):
    for number in range(1, scenes + 1):
        for folder in images:
            save_image(root / base / folder / f"{number}.png", (16, 32) if folder == "rgb-2k" else (10, 20), number)
        save(root / base / "class" / f"{number}.png", label_ids()[random_values([*range(19), 255], (10, 20), number)])
    return root


def ids(dataset):
    return [int(dataset.frame_id(index)) for index in range(len(dataset))]


def test_training_and_validation_share_no_scene(tmp_path):
    make(tmp_path)
    train, val = (ids(at_random(tmp_path, split, 12, 8)) for split in ("train", "val"))
    assert (len(train), len(val)) == (12, 8)
    assert sorted(train + val) == list(range(1, 21))
    assert train != list(range(1, 13))


def test_the_selection_depends_on_the_seed_alone(tmp_path):
    make(tmp_path)
    first = ids(at_random(tmp_path, "train", 10, 5))
    assert first == ids(at_random(tmp_path, "train", 10, 2)) == ids(at_random(tmp_path, "train", 10, 5, images="rgb"))
    assert first != ids(at_random(tmp_path, "train", 10, 5, seed=1))
    assert ids(at_random(tmp_path, "val", 10, 5)) == ids(at_random(tmp_path, "val", 3, 5))


def test_the_published_selection_is_that_of_the_paper():
    train, val = published_ids("train"), published_ids("val")
    assert (len(train), len(val)) == (2975, 500)
    assert len({*train, *val}) == 3475
    assert (train[:3], val[:3]) == ([5962, 18809, 11597], [19053, 9486, 10832])
    assert all(1 <= number <= 25000 for number in (*train, *val))


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_published_selection_is_the_default(tmp_path, monkeypatch, split):
    monkeypatch.setattr(module, "published_ids", {"train": [5, 2, 19], "val": [7, 1]}.__getitem__)
    assert ids(synscapes(make(tmp_path), split)) == {"train": [5, 2, 19], "val": [7, 1]}[split]
    assert len(synscapes(tmp_path, "all")) == 20


def test_scenes_that_are_missing_of_the_published_selection_are_told(tmp_path):
    there = [number for number in range(1, 21) if number in published_ids("train")]
    message = rf"{tmp_path}: {2975 - len(there):,} of the 2,975 scenes that the paper's authors selected are missing "
    with pytest.raises(InputError, match=message + r"\(5962, 18809, 11597, .* …\); complete the .*selection=random"):
        synscapes(make(tmp_path))


def test_a_selection_in_a_file(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("12\n 3\n\n7\r\n")
    make(tmp_path)
    assert ids(synscapes(tmp_path, selection=str(path))) == [12, 3, 7]
    assert ids(synscapes(tmp_path, "val", selection=str(path))) == [12, 3, 7]
    (tmp_path / "img/rgb-2k/3.png").unlink()
    with pytest.raises(InputError, match=r"1 of the 3 scenes of .*ids.txt are missing \(3\); complete the download"):
        synscapes(tmp_path, selection=str(path))


def test_another_list_in_the_file_is_another_version(tmp_path):
    path = tmp_path / "ids.txt"
    versions = set()
    for text in ("1\n2\n", "1\n3\n", "1\n\n3"):
        path.write_text(text)
        versions.add(SynscapesSource(selection=str(path)).version)
    assert len(versions) == 2
    assert SynscapesSource().version not in versions


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\ntwo\n", "ids.txt, line 2: 'two' is no number of a scene; give selection=published, random, or a text"),
        (b"1\n-2\n", "line 2: '-2' is no number"),
        (b"4\n1\n04\n", "line 3: scene 4 stands in line 1 already"),
        (b"\n", "ids.txt: holds no number of a scene"),
        (b"\xff\xfe", "ids.txt: cannot be read"),
    ],
)
def test_a_file_that_is_no_selection(tmp_path, content, message):
    (tmp_path / "ids.txt").write_bytes(content)
    with pytest.raises(InputError, match=message):
        synscapes(make(tmp_path), selection=str(tmp_path / "ids.txt"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """The published selection, every scene a link to one of two images, the first scenes to the second one."""
    root = tmp_path_factory.mktemp("published")
    for seed in (0, 1):
        save_image(root / f"{seed}.png", (16, 32), seed)
        save(root / f"{seed}-class.png", label_ids()[random_values(range(19), (10, 20), seed)])
    for folder in ("rgb-2k", "class"):
        (root / "synscapes/img" / folder).mkdir(parents=True)
    firsts = {published_ids("train")[0], published_ids("val")[0]}
    for number in (*published_ids("train"), *published_ids("val")):
        seed = int(number in firsts)
        os.link(root / f"{seed}.png", root / f"synscapes/img/rgb-2k/{number}.png")
        os.link(root / f"{seed}-class.png", root / f"synscapes/img/class/{number}.png")
    return root


@pytest.fixture
def hide(scenes):
    """Hide scenes by their places in the published list: labels of every third one, images otherwise."""
    hidden = []

    def take(split, places):
        for count, place in enumerate(places):
            folder = "class" if count % 3 == 2 else "rgb-2k"
            path = scenes / f"synscapes/img/{folder}/{published_ids(split)[place]}.png"
            hidden.append(path)
            path.rename(path.with_suffix(".away"))
        return scenes

    yield take
    for path in hidden:
        path.with_suffix(".away").rename(path)


PLACES = range(3, 3 + 26 * 17, 17)  # of 26 absent scenes


def of_recipe(root, split):
    """The training data or the domain of the published recipe."""
    data = recipe_of("cityscapes-segmentation", f"data.root={root}").data
    source = {"train": data.train, "val": data.domains["synscapes"]}[split]
    return source.open("segmentation", data.folders, {"train": "data.train", "val": "data.domains.synscapes"}[split])


@pytest.mark.parametrize(("split", "first"), [("train", 5962), ("val", 19053)])
def test_the_published_recipe_replaces_26_absent_scenes_by_the_first(hide, split, first):
    expected = [first if place in PLACES else number for place, number in enumerate(published_ids(split))]
    found = ids(of_recipe(hide(split, PLACES), split))
    assert found.count(first) == 1 + 26
    assert found == expected


def test_the_whole_sample_is_replaced(hide):
    dataset = of_recipe(hide("train", PLACES), "train")
    assert torch.equal(dataset[3].inputs["image"], dataset[0].inputs["image"])
    assert torch.equal(dataset[3].target, dataset[0].target)
    assert not torch.equal(dataset[3].target, dataset[4].target)


def test_absent_scenes_are_left_out_unless_they_are_replaced(hide):
    root = hide("val", PLACES)
    expected = [number for place, number in enumerate(published_ids("val")) if place not in PLACES]
    assert ids(synscapes(root / "synscapes", "val")) == expected


@pytest.mark.parametrize(("absent", "done"), [("skip", "left out"), ("replace", "each replaced by scene 19053")])
def test_absent_scenes_are_counted_and_listed(hide, absent, done):
    root = hide("val", PLACES)
    numbers = ", ".join(str(published_ids("val")[place]) for place in PLACES)
    note = f"26 absent of the 500 scenes that the paper's authors selected, {done}: {numbers}."
    assert synscapes(root / "synscapes", "val", absent=absent).notes == (note,)


@pytest.mark.parametrize("absent", ["skip", "replace"])
def test_more_absent_scenes_are_refused(hide, absent):
    root = hide("train", range(1, 28))
    with pytest.raises(InputError, match=r"27 of the 2,975 scenes that .* selected are missing \(18809, 11597, .* …\)"):
        synscapes(root / "synscapes", absent=absent)


def test_the_first_scene_cannot_be_replaced(hide):
    root = hide("val", [0])
    with pytest.raises(InputError, match=r"scene 19053 is missing, the first that .* or absent=skip"):
        of_recipe(root, "val")


def test_training_goes_on_with_the_same_absent_scenes_alone(hide, tmp_path):
    recipe = recipe_of("cityscapes-segmentation", f"data.root={hide('train', [7])}")
    run = Run(recipe, RunFolder(tmp_path / "run"), Machine.of(torch.device("cpu"), 1), Silent())
    for _ in range(2):
        ImageExperiment(run).prepare(["train"])
    hide("train", [8])
    with pytest.raises(
        InputError, match=r"data.train: its images are not those of the first training .* another --out"
    ):
        ImageExperiment(run).prepare(["train"])


def test_training_on_complete_data_does_not_go_on_with_absent_scenes(hide, tmp_path):
    recipe = recipe_of("cityscapes-segmentation", f"data.root={hide('train', [7])}")
    trained = tmp_path / "run/members/ensemble/0000.safetensors"  # of a complete download: no notes lie beside it
    trained.parent.mkdir(parents=True)
    trained.touch()
    run = Run(recipe, RunFolder(tmp_path / "run"), Machine.of(torch.device("cpu"), 1), Silent())
    with pytest.raises(InputError, match=r"not those of the first training .*lacked none"):
        ImageExperiment(run).prepare(["train"])


def test_a_complete_selection_has_no_note(scenes):
    assert of_recipe(scenes, "val").notes == ()


def test_labels_as_they_are(tmp_path):
    dataset = synscapes(make(tmp_path), "all", images="rgb")
    assert ids(dataset) == list(range(1, 21))
    np.testing.assert_array_equal(dataset[2].target.numpy(), random_values([*range(19), 255], (10, 20), 3))


def test_labels_are_scaled_to_the_large_images(tmp_path):
    batch = synscapes(make(tmp_path), "all")[0]
    assert batch.inputs["image"].shape == (3, 16, 32)
    assert torch.equal(batch.valid, batch.target != 255)
    small = torch.from_numpy(random_values([*range(19), 255], (10, 20), 1))
    expected = torch.nn.functional.interpolate(small[None, None].double(), (16, 32), mode="nearest-exact")[0, 0]
    assert torch.equal(batch.target, expected.long())


def test_labels_are_scaled_as_by_opencv(tmp_path):
    target = synscapes(make(tmp_path), "all", scale_rule="opencv")[0].target
    small = torch.from_numpy(random_values([*range(19), 255], (10, 20), 1)).long()
    assert torch.equal(target, small[torch.arange(16) * 10 // 16][:, torch.arange(32) * 20 // 32])


def test_a_label_of_another_shape_is_told(tmp_path):
    make(tmp_path, 1)
    save(tmp_path / "img/class/1.png", np.zeros((10, 21)))
    with pytest.raises(InputError, match=r"class/1.png: is 10×21, but .*rgb-2k/1.png is 16×32"):
        synscapes(tmp_path, "all")[0]


def test_images_that_were_never_published_are_left_out(tmp_path):
    (make(tmp_path) / "img/rgb-2k/7.png").unlink()
    assert 7 not in ids(synscapes(tmp_path, "all"))


def test_an_image_without_its_label(tmp_path):
    (make(tmp_path) / "img/class/7.png").unlink()
    with pytest.raises(InputError, match=r"rgb-2k/7.png: what belongs to it is missing in .*img/class"):
        synscapes(tmp_path, "all")


def test_the_folder_above_will_do(tmp_path):
    assert len(synscapes(make(tmp_path, 3, base="Synscapes/img"), "all")) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "split"),
        ({"images": "2k"}, "images"),
        (
            {"selection": "random"},
            "has 20 scenes, not 2,975 for training and 500 others for validation; give smaller num_train",
        ),
        ({"selection": "random", "num_train": 19, "num_val": 2}, "has 20 scenes, not 19 for training and 2 others"),
        ({"selection": "random", "num_train": 0, "num_val": 2}, "num_train"),
        ({"num_train": 19}, "num_train: decides nothing but a random selection; give selection=random, too"),
        ({"selection": "ids.txt", "seed": 1}, "seed: decides nothing but a random selection"),
        ({"selection": "nowhere.txt"}, "nowhere.txt: there is no such selection of Synscapes; give selection=publ"),
    ],
)
def test_what_cannot_be(tmp_path, arguments, message):
    make(tmp_path)
    with pytest.raises(ValueError, match=message):
        synscapes(tmp_path, **arguments)


def test_parts_that_are_missing(tmp_path):
    with pytest.raises(InputError, match="none: folder is missing; give the one that Synscapes"):
        synscapes(tmp_path / "none")
    with pytest.raises(InputError, match="img/rgb-2k: folder is missing; unpack Synscapes into"):
        synscapes(tmp_path)
    make(tmp_path, 2, images=("rgb",))
    with pytest.raises(InputError, match=r"img/rgb-2k: folder is missing; .*, or give images=rgb"):
        synscapes(tmp_path)
    (tmp_path / "img/rgb-2k").mkdir()
    with pytest.raises(InputError, match=r"img/rgb-2k: no NUMBER.png is there"):
        synscapes(tmp_path)
