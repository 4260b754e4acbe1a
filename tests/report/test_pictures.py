import base64
import struct
import zlib

import fake_run
from html_tree import Node, parse_html

from epibench.report.colour_map import indexed_png, palette
from epibench.report.pictures import Pictures, pictures_of
from epibench.report.runs import methods_of, read_runs
from epibench.report.svg import polyline


def book(results: dict[str, object]) -> Pictures:
    (run,) = read_runs([results])
    found = pictures_of(run, methods_of([run]), "book")
    assert found is not None
    return found


def chart(pictures: Pictures, group: int, panel: int) -> Node:
    return parse_html(str(pictures.groups[group].panels[panel].chart))


def read_png(data: bytes) -> tuple[list[bytes], bytes]:
    """The rows of an indexed PNG and its palette, with every checksum tested."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, start = {}, 8
    while start < len(data):
        (length,) = struct.unpack_from(">I", data, start)
        name, content = data[start + 4 : start + 8], data[start + 8 : start + 8 + length]
        assert struct.unpack_from(">I", data, start + 8 + length) == (zlib.crc32(name + content),)
        chunks[name] = content
        start += 12 + length
    width, height, depth, kind = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    assert (depth, kind) == (8, 3)
    lines = zlib.decompress(chunks[b"IDAT"])
    rows = [lines[y * (width + 1) : (y + 1) * (width + 1)] for y in range(height)]
    assert all(row[0] == 0 for row in rows)  # no filter
    return [row[1:] for row in rows], chunks[b"PLTE"]


def test_a_png_comes_back_pixel_for_pixel() -> None:
    assert read_png(indexed_png([b"\x00\x01\x05", b"\x02\xff\x06"], palette())) == (
        [b"\x00\x01\x05", b"\x02\xff\x06"],
        palette(),
    )


def test_the_palette_is_lightest_in_the_middle() -> None:
    sums = [sum(palette()[3 * i : 3 * i + 3]) for i in range(256)]
    assert sums[:128] == sorted(sums[:128])
    assert sums[128:] == sorted(sums[128:], reverse=True)


def test_the_top_row_of_a_map_is_the_largest_x2() -> None:
    results = fake_run.classification()
    x2 = results["pictures"]["grid"]["x2"]
    results["pictures"]["reference"]["probs"] = [float(value > 0) for value in x2 for _ in range(60)]
    (image,) = chart(book(results), 0, 0).find_all("image")
    data = (image.attributes["href"] or "").removeprefix("data:image/png;base64,")
    rows, _ = read_png(base64.b64decode(data))
    assert rows[0] == b"\xff" * 60
    assert rows[59] == b"\x00" * 60


def test_methods_have_a_picture_for_each_m() -> None:
    found = book(fake_run.classification())
    titles = {group.title: [panel.title.replace("\u00a0", " ") for panel in group.panels] for group in found.groups}
    assert titles["SGLD"] == ["M = 16", "M = 64"]
    assert titles["To compare with"] == ["Reference", "Data and truth"]


def test_point_estimates_share_a_figure() -> None:
    found = book(fake_run.regression())
    assert [panel.title.split(",")[0] for panel in found.groups[1].panels] == ["MAP", "Maximum likelihood"]


def test_direct_regression_shows_no_uncertainty() -> None:
    assert not chart(book(fake_run.regression()), 0, 1).find_all("path", "std")


def test_each_example_is_a_layer_and_the_first_is_seen() -> None:
    layers = chart(book(fake_run.regression()), 2, 0).find_all("g", "layer")
    assert [layer.attributes["data-m"] for layer in layers] == ["1", "2"]
    assert ["chosen" in layer.classes for layer in layers] == [True, False]


def test_a_run_without_pictures_has_none() -> None:
    (run,) = read_runs([fake_run.bare()])
    assert pictures_of(run, methods_of([run]), "book") is None


def test_pictures_without_a_reference_are_drawn() -> None:
    results = fake_run.regression()
    results["pictures"]["reference"] = None
    assert [panel.title for panel in book(results).groups[0].panels] == ["Direct regression, no uncertainty"]


def test_a_map_of_the_wrong_size_is_said() -> None:
    results = fake_run.classification()
    results["pictures"]["reference"]["probs"] = [0.5]
    assert "no picture" in chart(book(results), 0, 0).text


def test_a_polyline_is_exact_to_a_tenth_however_long() -> None:
    points = [(0.04 * i, 0.26 * i) for i in range(1000)]
    text = polyline(points)
    start, steps = text.removeprefix("M").split("l")
    x, y = map(float, start.split(","))
    for step in steps.split(" "):
        dx, dy = map(float, step.split(","))
        x, y = x + dx, y + dy
    assert abs(x - points[-1][0]) <= 0.0501
    assert abs(y - points[-1][1]) <= 0.0501
