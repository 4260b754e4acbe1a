import subprocess
import sys

import pytest

from epibench.oklab import from_oklab, in_bytes, to_oklab


@pytest.mark.parametrize("colour", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.2, 0.5, 0.9), (1.0, 0.0, 0.3)])
def test_colours_come_back(colour: tuple[float, float, float]) -> None:
    assert from_oklab(*to_oklab(*colour)) == pytest.approx(colour, abs=1e-3)


def test_what_lies_outside_of_srgb_is_clipped() -> None:
    assert in_bytes((1.2, -0.1, 0.5)) == (255, 0, 128)


def test_pages_need_no_torch() -> None:
    code = "import sys, epibench.report, epibench.published; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
