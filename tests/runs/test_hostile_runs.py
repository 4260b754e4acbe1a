"""Run folders with flipped bits, without checksums, with links to nowhere, on a full disk, without permission."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from silent_reporter import run_in
from small_recipes import small

import epibench
from epibench.errors import InputError
from street_runs import epibench_command

FLIPS = 60
Recipe = Any


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return small("toy-regression", 'methods=["sgld"]', "test_points=5")


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_in(folder, recipe)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def flipped(content: bytes, number: int) -> bytes:
    """Flip one bit; the first two numbers flip the first and the last bit."""
    chance = random.Random(number)
    bit = {0: 0, 1: 8 * len(content) - 1}.get(number, chance.randrange(8 * len(content)))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(read: Callable[[], object], file: Path) -> None:
    with pytest.raises(InputError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message


def recipe_in(folder: Path) -> dict[str, Any]:
    """Return the recipe of a run without its checksum."""
    return json.loads(unsigned((folder / "recipe.json").read_bytes()))


def numbers(folder: Path) -> dict[str, Any]:
    return epibench.load_results(folder).computed()


def test_every_flipped_bit_of_results_is_refused(run: Path) -> None:
    file = run / "results.json"
    content = file.read_bytes()
    for number in range(FLIPS):
        file.write_bytes(flipped(content, number))
        refused(lambda: epibench.load_results(run), file)
        refused(lambda: epibench.load_results(file), file)


def test_every_flipped_bit_of_a_recipe_is_refused(run: Path) -> None:
    file = run / "recipe.json"
    content = file.read_bytes()
    for number in range(FLIPS):
        file.write_bytes(flipped(content, number))
        refused(lambda: epibench.run(run, device="cpu"), file)


def digits_changed(content: bytes) -> bytes:
    """Change a digit of the last number: the file remains JSON of the right form."""
    place = max(content.rfind(digit) for digit in (b"0,", b"1,", b"2,", b"3,", b"5,"))
    return content[:place] + b"7" + content[place + 1 :]


def unsigned(content: bytes) -> bytes:
    return json.dumps({name: value for name, value in json.loads(content).items() if name != "checksum"}).encode()


@pytest.mark.parametrize("change", [digits_changed, unsigned])
@pytest.mark.parametrize(
    "command",
    [
        ("report", "RUN"),
        ("report", "RUN/results.json"),
        ("export", "RUN", "--csv", "RUN/../out"),
        ("video", "RUN", "--on", "a"),
    ],
    ids=" ".join,
)
def test_commands_refuse_results_that_have_changed(
    change: Callable[[bytes], bytes], command: tuple[str, ...], run: Path
) -> None:
    file = run / "results.json"
    file.write_bytes(change(file.read_bytes()))
    status, said = epibench_command(*(part.replace("RUN", str(run)) for part in command))
    assert status == 2
    assert said.startswith(f"epibench: {file}: damaged")
    assert said.count("\n") == 1


@pytest.mark.parametrize("change", [digits_changed, unsigned])
@pytest.mark.parametrize("command", ["run", "train", "evaluate", "merge"])
def test_commands_refuse_a_run_whose_recipe_has_changed(
    change: Callable[[bytes], bytes], command: str, run: Path
) -> None:
    file = run / "recipe.json"
    file.write_bytes(change(file.read_bytes()))
    status, said = epibench_command(command, run)
    assert status == 2
    assert said.startswith(f"epibench: {file}: damaged")
    assert f"epibench run RECIPE --out {run}" in said
    assert said.count("\n") == 1


def test_a_run_with_a_damaged_recipe_continues_if_the_recipe_is_given_again(
    run: Path, recipe: Recipe, tmp_path: Path
) -> None:
    before, weights = numbers(run), (run / "members/sgld").stat().st_mtime_ns
    (tmp_path / "mine.json").write_text(recipe.model_dump_json())
    (run / "recipe.json").write_bytes(digits_changed((run / "recipe.json").read_bytes()))
    (run / "results.json").unlink()
    status, said = epibench_command("run", tmp_path / "mine.json", "--out", run)
    assert status == 0, said
    assert f"{run / 'recipe.json'}: damaged; it is written again" in said
    assert recipe_in(run) == recipe.model_dump(mode="json")
    assert numbers(run) == before
    assert (run / "members/sgld").stat().st_mtime_ns == weights


def test_beside_a_damaged_recipe_weights_of_another_recipe_are_refused(
    run: Path, recipe: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "mine.json").write_text(recipe.model_copy(update={"seed": 1}).model_dump_json())
    (run / "recipe.json").write_bytes(digits_changed((run / "recipe.json").read_bytes()))
    status, said = epibench_command("run", tmp_path / "mine.json", "--out", run)
    assert status == 2
    assert "made with other settings or other data than these" in said


@pytest.mark.parametrize(
    "change", [digits_changed, unsigned, lambda content: content.replace(b'"seed": 0', b'"seed": 3')]
)
def test_a_copy_of_a_recipe_may_be_edited(change: Callable[[bytes], bytes], run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(change((run / "recipe.json").read_bytes()))
    epibench.train(copy, tmp_path / "edited", device="cpu")
    assert recipe_in(tmp_path / "edited") == json.loads(unsigned(copy.read_bytes()))


@pytest.mark.parametrize("name", ["results.json", "recipe.json"])
def test_pipes_and_sparse_files_are_refused_unread(name: str, run: Path) -> None:
    file = run / name
    command = "report" if name == "results.json" else "evaluate"
    with file.open("wb") as stream:
        stream.truncate(2**36)
    status, said = epibench_command(command, run)
    assert (status, said.count("\n")) == (2, 1)
    assert said.startswith(f"epibench: {file}: damaged: it has 65,536 MiB")
    file.unlink()
    os.mkfifo(file)
    status, said = epibench_command(command, run)
    assert (status, said.count("\n")) == (2, 1)
    assert f"{file}: a folder, a pipe or a device" in said


def test_results_that_are_a_link_to_nowhere_make_no_folder_elsewhere(run: Path, recipe: Recipe, tmp_path: Path) -> None:
    before = numbers(run)
    (tmp_path / "mine.json").write_text(recipe.model_dump_json())
    (run / "results.json").unlink()
    (run / "results.json").symlink_to(tmp_path / "elsewhere/deep/results.json")
    assert epibench_command("run", tmp_path / "mine.json", "--out", run)[0] == 0
    assert not (tmp_path / "elsewhere").exists()
    assert numbers(run) == before


@pytest.mark.parametrize("name", ["members", "evaluation", "predictions"])
def test_folders_that_are_links_to_nowhere_are_refused(name: str, run: Path) -> None:
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(run.parent / "elsewhere")
    (run / "results.json").unlink()
    status, said = epibench_command("run", run)
    assert (status, said.strip().count("\n")) == (2, 1)
    assert f"{run / name}: a link to nowhere" in said
    assert not (run.parent / "elsewhere").exists()


def test_a_full_disk_names_the_lock(run: Path, recipe: Recipe) -> None:
    for file in (run / "members/sgld").iterdir():
        file.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            epibench.train(recipe, run, device="cpu")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(run / "members/sgld/0000-0001.lock")


@pytest.fixture
def other_user(finished: Path) -> Iterator[Path]:
    """A copy of the run that another user may enter; tests that run as root become that user."""
    place = Path(tempfile.mkdtemp())
    shutil.copytree(finished, place / "run")
    assert epibench_command("train", place / "run")[0] == 0  # imports what another user may not read
    user = os.geteuid()
    for path in (place, *place.rglob("*")):
        path.chmod(0o777)
        if user == 0:
            os.chown(path, 65534, -1)
    try:
        if user == 0:
            os.seteuid(65534)
        yield place / "run"
    finally:
        os.seteuid(user)
        shutil.rmtree(place)


@pytest.mark.parametrize(
    "file",
    [
        "members/sgld/0000-0001.000024.safetensors",
        "members/sgld/0000-0001.lock",
        "results.json",
        "recipe.json",
    ],
)
def test_a_file_without_permission_is_not_to_be_removed(file: str, other_user: Path, recipe: Recipe) -> None:
    if file != "results.json":
        (other_user / "results.json").unlink()
    if file.endswith(".lock"):
        (other_user / "members/sgld/0000-0001.000024.safetensors").unlink()
        (other_user / file).touch()
    (other_user / file).chmod(0)
    (other_user / "mine.json").write_text(recipe.model_dump_json())
    # The other user may not read the sources either: no page is written.
    command = "train" if file.startswith("members") else "run"
    status, said = epibench_command(command, other_user / "mine.json", "--out", other_user)
    complaint = said.strip().splitlines()[-1]
    assert status == 2, said
    assert str(other_user / file) in complaint
    assert "ermission denied" in complaint
    assert "remove" not in complaint
