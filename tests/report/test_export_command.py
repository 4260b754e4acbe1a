"""`epibench export`: what it writes, what it never writes over, and how it refuses."""

import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import fake
import pandas
import pytest

from epibench.cli import main

COMMAND = "import sys; sys.argv[1:] = {}; from epibench.cli import main; main()"


@pytest.fixture
def export(monkeypatch, capsys):
    """Run `epibench export …` in this process: its status, and what it says on stderr."""

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["epibench", "export", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code or 0, capsys.readouterr().err

    return call


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """A folder with a run on images, a toy run and scored files."""
    folder = tmp_path_factory.mktemp("given")
    for name, results in (("depth", fake.depth()), ("toy", fake.momentum())):
        (folder / name).mkdir()
        (folder / name / "results.json").write_text(results.as_json(), encoding="utf-8")
    files = [fake.scored_file(f"preds/{name}.zarr", members=(1, 2)) for name in ("ensemble", "mc_dropout")]
    (folder / "scores.json").write_text(fake.results(*files).as_json(), encoding="utf-8")
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_tables_of_runs_and_scored_files_together(export, given: Path, tmp_path: Path) -> None:
    status, said = export(given / "depth", given / "toy" / "results.json", given / "scores.json", "--csv", tmp_path)
    assert status == 0
    assert f"5 files in {tmp_path}" in said
    frame = pandas.read_csv(tmp_path / "summary.csv")
    assert set(frame["source"]) == {
        *("street-depth-completion", "toy-regression-momentum"),
        *("preds/ensemble.zarr", "preds/mc_dropout.zarr"),
    }


def test_runs_of_one_recipe_are_told_apart_by_their_folders(export, given: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "results.json").write_bytes((given / "toy" / "results.json").read_bytes())
    assert export(given / "toy", tmp_path / "again", "--csv", tmp_path / "out")[0] == 0
    sources = set(pandas.read_csv(tmp_path / "out" / "summary.csv")["source"])
    assert sources == {"toy-regression-momentum (toy)", "toy-regression-momentum (again)"}


def test_of_several_evaluations_the_exported_one_is_named(export, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(fake.twice_evaluated().as_json(), encoding="utf-8")
    out = tmp_path / "out"
    assert export(tmp_path, "--csv", out, "--latex", out)[0] == 0
    sources = {row["source"] for row in csv.DictReader((out / "summary.csv").read_text().splitlines())}
    assert sources == {"street-depth-completion", "street-depth-completion (bf16)"}
    assert r"\quad MC-dropout $\cdot$ street (bf16)" in (out / "clean.tex").read_text()


def test_all_kinds_into_one_folder_and_again(export, given: Path, tmp_path: Path) -> None:
    folders = [word for kind in ("csv", "latex", "svg", "pdf", "png") for word in (f"--{kind}", tmp_path)]
    for _ in range(2):  # the second time over the files of the first
        assert export(given / "scores.json", *folders, "--only", "wild*ause*")[0] == 2  # no table of CSV is called so
        status, said = export(given / "scores.json", *folders[2:], "--only", "wild*")
        assert status == 0, said
    found = names(tmp_path)
    assert {"wild.tex", "preview.tex", "index.md", "export.json"} <= found
    assert {f"wild-ause.{kind}" for kind in ("svg", "pdf", "png")} <= found
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert all(f"[{name}]" in index for name in found - {"index.md", "export.json"})
    assert "| [wild-ause.svg](wild-ause.svg) | AUSE over M, wild |" in index


def test_the_list_has_the_checksum_of_every_file(export, given: Path, tmp_path: Path) -> None:
    assert export(given / "scores.json", "--latex", tmp_path)[0] == 0
    listed = json.loads((tmp_path / "export.json").read_text(encoding="utf-8"))
    assert set(listed) == names(tmp_path) - {"export.json"}
    for name, entry in listed.items():
        assert entry["sha256"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


@pytest.mark.parametrize("whose", ["foreign", "changed"])
def test_what_is_not_ours_is_never_written_over(whose: str, export, given: Path, tmp_path: Path) -> None:
    if whose == "changed":
        assert export(given / "scores.json", "--csv", tmp_path)[0] == 0
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "summary.csv"}
    else:
        before = {}
    (tmp_path / "summary.csv").write_text("my own", encoding="utf-8")
    status, said = export(given / "depth", "--csv", tmp_path)
    assert status == 2
    why = "was changed since epibench wrote it" if whose == "changed" else "is there, and not from epibench export"
    assert said == f"epibench: {tmp_path / 'summary.csv'}: {why}; move it away, or give another folder\n"
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after == {**before, "summary.csv": b"my own"}  # nothing else was written either


def test_only_what_matches(export, given: Path, tmp_path: Path) -> None:
    assert export(given / "depth", "--svg", tmp_path, "--only", "clean-cov*-m8")[0] == 0
    found = names(tmp_path) - {"index.md", "export.json"}
    assert found
    assert all(name.startswith("clean-") and name.endswith("-m8.svg") for name in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["scores.json"],
            "nothing to write. Fix: give at least one of --csv FOLDER, --latex FOLDER, --svg FOLDER, --pdf FOLDER, "
            "--png FOLDER.",
        ),
        (["nowhere", "--csv", "out"], "nowhere: there is no such file or folder"),
        ([".", "--csv", "out"], ".: holds no results.json: has the run finished?"),
        (["scores.json", "--svg", "out", "--only", "x*"], "--svg out: nothing matches --only x*"),
        (["scores.json", "--csv", "scores.json"], "scores.json: cannot make this folder (File exists)"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], message: str, export, given: Path, monkeypatch) -> None:
    monkeypatch.chdir(given)
    assert export(*arguments) == (2, f"epibench: {message}\n")


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_figures_without_matplotlib_are_refused_before_anything_is_drawn(
    kind: str, export, given, tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, said = export(given / "scores.json", f"--{kind}", tmp_path)
    wanted = "epibench: figures: matplotlib is not installed. Fix: pip install 'epibench[figures]'\n"
    assert (status, said) == (2, wanted)
    assert not names(tmp_path)


def test_tables_load_neither_torch_nor_matplotlib(given: Path, tmp_path: Path) -> None:
    arguments = ["export", str(given / "depth"), "--csv", str(tmp_path)]
    code = f"try:\n    {COMMAND.format(arguments)}\nexcept SystemExit as stop:\n    assert not stop.code\n"
    code += "print(*sorted({'torch', 'matplotlib', 'pandas', 'lightning'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == ""
