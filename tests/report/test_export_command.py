"""`epibench export`: what it writes, what it never writes over, and how it refuses."""

import hashlib
import json
import subprocess
import sys

import fake
import pandas
import pytest


@pytest.fixture(scope="module")
def given(tmp_path_factory, save):
    """A folder with a run on images, a toy run and scored files."""
    folder = tmp_path_factory.mktemp("given")
    save(fake.depth(), folder / "depth")
    save(fake.momentum(), folder / "toy")
    files = [fake.scored_file(f"preds/{name}.zarr", members=(1, 2)) for name in ("ensemble", "mc_dropout")]
    save(fake.results(*files), folder / "scores.json")
    return folder


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def sources(folder) -> set[str]:
    return set(pandas.read_csv(folder / "summary.csv")["source"])


def test_tables_of_runs_and_scored_files_together(command, given, tmp_path) -> None:
    said = command("export", given / "depth", given / "toy" / "results.json", given / "scores.json", "--csv", tmp_path)
    assert said.status == 0
    assert f"5 files in {tmp_path}" in said.err
    runs = {"street-depth-completion", "toy-regression-momentum"}
    assert sources(tmp_path) == runs | {"preds/ensemble.zarr", "preds/mc_dropout.zarr"}


def test_runs_of_one_recipe_are_told_apart_by_their_folders(command, save, given, tmp_path) -> None:
    again = save(fake.momentum(), tmp_path / "again")
    assert command("export", given / "toy", again, "--csv", tmp_path).status == 0
    assert sources(tmp_path) == {"toy-regression-momentum (toy)", "toy-regression-momentum (again)"}


def test_of_several_evaluations_the_exported_one_is_named(command, save, tmp_path) -> None:
    run = save(fake.twice_evaluated(), tmp_path / "run")
    assert command("export", run, "--csv", tmp_path, "--latex", tmp_path).status == 0
    assert sources(tmp_path) == {"street-depth-completion", "street-depth-completion (bf16)"}
    assert r"\quad MC-dropout $\cdot$ street (bf16)" in (tmp_path / "clean.tex").read_text()


def test_all_kinds_into_one_folder_and_again(command, given, tmp_path) -> None:
    folders = [word for kind in ("csv", "latex", "svg", "pdf", "png") for word in (f"--{kind}", tmp_path)]
    for _ in range(2):  # the second time over the files of the first
        said = command("export", given / "scores.json", *folders, "--only", "wild*ause*")
        assert said.status == 2  # no table of CSV has such a name
        assert command("export", given / "scores.json", *folders[2:], "--only", "wild*").status == 0
    found = names(tmp_path)
    assert {"wild.tex", "preview.tex", *(f"wild-ause.{kind}" for kind in ("svg", "pdf", "png"))} <= found
    listed = json.loads((tmp_path / "export.json").read_text(encoding="utf-8"))
    assert set(listed) == found - {"export.json"}
    for name, entry in listed.items():
        assert entry["sha256"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert all(f"[{name}]" in index for name in found - {"index.md", "export.json"})
    assert "| [wild-ause.svg](wild-ause.svg) | AUSE over M, wild |" in index


@pytest.mark.parametrize("listed", [False, True])
def test_files_of_others_are_never_overwritten(listed, command, given, tmp_path) -> None:
    if listed:
        assert command("export", given / "scores.json", "--csv", tmp_path).status == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()} | {"summary.csv": b"my own"}
    (tmp_path / "summary.csv").write_text("my own", encoding="utf-8")
    why = "was changed since epibench wrote it" if listed else "is there, and not from epibench export"
    said = command("export", given / "depth", "--csv", tmp_path)
    assert said.status == 2
    assert said.err == f"epibench: {tmp_path / 'summary.csv'}: {why}; move it away, or give another folder\n"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_only_what_matches(command, given, tmp_path) -> None:
    assert command("export", given / "depth", "--svg", tmp_path, "--only", "clean-cov*-m8").status == 0
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
        (["scores.json", "--csv", "out", "--only", ""], "--csv out: nothing matches --only "),
        (["scores.json", "--csv", "scores.json"], "scores.json: cannot make this folder (File exists)"),
    ],
)
def test_wrong_use_is_one_line(arguments, message, command, given, monkeypatch) -> None:
    monkeypatch.chdir(given)
    said = command("export", *arguments)
    assert (said.status, said.err) == (2, f"epibench: {message}\n")


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_figures_without_matplotlib_are_refused_before_drawing(kind, command, given, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = command("export", given / "scores.json", f"--{kind}", tmp_path)
    wanted = "epibench: figures: matplotlib is not installed. Fix: pip install 'epibench[figures]'\n"
    assert (said.status, said.err) == (2, wanted)
    assert not names(tmp_path)


def test_tables_load_neither_torch_nor_matplotlib(given, tmp_path) -> None:
    code = f"import sys; sys.argv[1:] = ['export', {str(given / 'depth')!r}, '--csv', {str(tmp_path)!r}]\n"
    code += "from epibench.cli import main\ntry:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
    code += "print(*sorted({'torch', 'matplotlib', 'pandas', 'lightning'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == ""
