"""`package.module:name`: found in the current folder, and what is told when it is not."""

import sys

import pytest

from epibench.errors import InputError
from epibench.imported import load_object, signature_error


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder; modules that a test loads are forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_class_in_the_current_folder(folder):
    (folder / "own_garden").mkdir()
    (folder / "own_garden/data.py").write_text("class Garden:\n    pass\n")
    assert load_object("own_garden.data:Garden", "a data set").__name__ == "Garden"


def test_installed_packages_come_first(folder):
    (folder / "fractions.py").write_text("Fraction = None\n")
    assert load_object("fractions:Fraction", "a number")(1, 2) == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("own_garden", "'own_garden': give a data set as package.module:name"),
        ("own_garden:", "'own_garden:': give a data set as package.module:name"),
        ("../own_garden:Garden", "'../own_garden:Garden': give a data set as package.module:name"),
        ("own_garden:Garden", "module 'own_garden' is not found, neither installed nor in the current folder (/"),
        ("garden_file.sub:Garden", "module 'garden_file.sub' is not found"),
        ("garden_file:Gardn", "garden_file.py has no 'Gardn'; the nearest is 'Garden'"),
        (
            "garden_file:SIZE",
            "'garden_file:SIZE': is int and cannot be called; give a class or function that makes a data set",
        ),
        ("needs_more:Garden", "module 'needs_more' needs 'no_such_thing', which is not installed"),
        ("raises:Garden", "module 'raises' cannot be imported: ZeroDivisionError in "),
        ("wrong:Garden", "module 'wrong' cannot be imported: SyntaxError in "),
    ],
)
def test_what_cannot_be_loaded(folder, text, message):
    (folder / "garden_file.py").write_text("SIZE = 3\n\nclass Garden:\n    pass\n")
    (folder / "needs_more.py").write_text("import no_such_thing\n")
    (folder / "raises.py").write_text("\nx = 1 / 0\n")
    (folder / "wrong.py").write_text("class Garden\n")
    with pytest.raises(InputError) as caught:
        load_object(text, "a data set")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_line_of_an_error_is_named(folder):
    (folder / "raises.py").write_text("\nx = 1 / 0\n")
    with pytest.raises(InputError, match=rf"ZeroDivisionError in {folder}/raises.py, line 2: division by zero"):
        load_object("raises:Garden", "a data set")


def test_options_that_do_not_fit_are_told_before_the_call():
    def garden(num_beds: int, shady: bool = False) -> None:
        raise TypeError("within")

    assert signature_error(garden, {"num_beds": 2}) is None
    assert signature_error(garden, {"num_beds": 2, "wide": 1}) == "got an unexpected keyword argument 'wide'"
    assert signature_error(garden, {"shady": True}) == "missing a required argument: 'num_beds'"
