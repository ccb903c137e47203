"""Regions, sizes, rotations, qualities and formats, as the Image API 3.0 defines them."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import thera.iiif.cache
import thera.iiif.folder
import thera.iiif.info
import thera.iiif.requests
import thera.iiif.server
from thera.errors import InvalidInput
from thera.iiif.info import information
from thera.iiif.pictures import Facts
from thera.iiif.requests import Canvas, parse

CANVAS = Canvas(600, 400, 10**6)


def asked(region: str = "full", size: str = "max", rotation: str = "0", ending: str = "default.jpg"):
    return parse(region, size, rotation, ending, CANVAS, default="color")


@pytest.mark.parametrize(
    "module",
    [thera.iiif.cache, thera.iiif.folder, thera.iiif.info, thera.iiif.requests, thera.iiif.server],
)
def test_examples_in_the_documentation_run(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("full", (0, 0, 600, 400)),
        ("square", (100, 0, 400, 400)),
        ("10,20,30,40", (10, 20, 30, 40)),
        ("590,390,100,100", (590, 390, 10, 10)),
        ("pct:25,50,50,50", (150, 200, 300, 200)),
        ("pct:33.3,0,.5,100", (200, 0, 3, 400)),
    ],
)
def test_region_is_in_whole_pixels_and_cut_at_the_edges(region, expected):
    assert asked(region).region == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("max", (600, 400)),
        ("^max", (600, 400)),
        ("300,", (300, 200)),
        (",100", (150, 100)),
        ("100,300", (100, 300)),
        ("!100,300", (100, 67)),
        ("!600,100", (150, 100)),
        ("pct:50", (300, 200)),
        ("pct:12.5", (75, 50)),
        ("^1200,", (1200, 800)),
        ("^,800", (1200, 800)),
        ("^900,500", (900, 500)),
        ("^!900,900", (900, 600)),
        ("^!300,300", (300, 200)),
        ("^pct:150", (900, 600)),
    ],
)
def test_size_of_the_whole_image(size, expected):
    assert asked(size=size).size == expected


def test_max_of_a_region_is_its_own_size_and_enlarged_that_of_the_image():
    assert asked("0,0,60,20", "max").size == (60, 20)
    assert asked("0,0,60,20", "^max").size == (600, 200)


def test_max_and_boxes_stop_at_the_pixels_that_are_sent_and_other_sizes_are_refused():
    canvas = Canvas(6000, 4000, 10**6)
    for size in ("max", "^max", "!6000,6000", "^!9000,9000"):
        w, h = parse("full", size, "0", "default.jpg", canvas, default="color").size
        assert 0.995e6 < w * h <= 1e6
        assert abs(w / h - 1.5) < 0.005
    for size in ("6000,", "pct:90", "^pct:200", "^99999999999999999999,"):
        with pytest.raises(InvalidInput, match="sent at once"):
            parse("full", size, "0", "default.jpg", canvas, default="color")


@pytest.mark.parametrize("size", ["^!50,50", "!50,50", ",50", "^,50"])
@pytest.mark.parametrize("rotation", ["0", "30", "90"])
def test_a_strip_keeps_its_last_row(size, rotation):
    tall, wide = Canvas(1, 500, 10**6), Canvas(500, 1, 10**6)
    across = size if "!" in size else size.replace(",50", "50,")
    assert parse("full", size, rotation, "gray.jpg", tall, default="color").size == (1, 50)
    assert parse("full", across, rotation, "gray.jpg", wide, default="color").size == (50, 1)


@pytest.mark.parametrize("size", ["601,", ",401", "601,10", "10,401", "pct:100.1", "!601,401", "!2000,3000"])
def test_only_sizes_that_say_so_enlarge(size):
    with pytest.raises(InvalidInput, match=r"write \^"):
        asked(size=size)
    asked(size="^" + size)


@pytest.mark.parametrize(
    "parts",
    [
        {"region": "600,0,10,10"},
        {"region": "0,0,0,10"},
        {"region": "pct:0,0,0.01,50"},
        {"region": "-1,0,10,10"},
        {"region": "0,0,10"},
        {"region": "Full"},
        {"region": "١,0,10,10"},
        {"size": "full"},
        {"size": "0,"},
        {"size": "!0,50"},
        {"size": "^50,0"},
        {"size": ","},
        {"size": "!10,"},
        {"size": "^"},
        {"size": "pct:0"},
        {"size": "pct:1e2"},
        {"size": "1.5,"},
        {"size": "99999999999,"},
        {"rotation": "361"},
        {"rotation": "-90"},
        {"rotation": "!"},
        {"rotation": "nan"},
        {"ending": "default.gif"},
        {"ending": "native.jpg"},
        {"ending": "default"},
        {"ending": ".jpg"},
        {"size": "^40000,1", "ending": "default.webp"},
    ],
)
def test_what_makes_no_image_is_refused_with_a_reason(parts):
    with pytest.raises(InvalidInput, match=r".+: |no pixel"):
        asked(**parts)


@pytest.mark.parametrize(
    ("parts", "canonical"),
    [
        (("0,0,600,400", "600,400", "0", "color.jpg"), "full/max/0/default.jpg"),
        (("pct:0,0,50,50", "150,", "0.0", "gray.png"), "0,0,300,200/150,100/0/gray.png"),
        (("0,0,300,200", "^600,", "360", "default.webp"), "0,0,300,200/^max/0/default.webp"),
        (("full", "^pct:150", "!22.50", "bitonal.jpg"), "full/^900,600/!22.5/bitonal.jpg"),
    ],
)
def test_canonical_form(parts, canonical):
    assert parse(*parts, CANVAS, default="color").canonical == canonical


@given(
    left=st.integers(0, 599),
    top=st.integers(0, 399),
    width=st.integers(1, 600),
    height=st.integers(1, 400),
    size=st.one_of(
        st.sampled_from(["max", "^max"]),
        st.tuples(st.integers(1, 1000), st.integers(1, 1000)).map(lambda s: f"^{s[0]},{s[1]}"),
        st.tuples(st.integers(1, 900), st.integers(1, 900)).map(lambda s: f"^!{s[0]},{s[1]}"),
        st.floats(1, 120).map(lambda n: f"^pct:{n:.3f}"),
    ),
    angle=st.floats(0, 360).map(lambda a: f"{a:.4f}"),
    mirrored=st.booleans(),
    quality=st.sampled_from(["default", "color", "gray", "bitonal"]),
)
def test_canonical_form_asks_for_the_same_image(left, top, width, height, size, angle, mirrored, quality):
    try:
        request = parse(
            f"{left},{top},{width},{height}",
            size,
            "!" * mirrored + angle,
            quality + ".png",
            CANVAS,
            default="color",
        )
    except InvalidInput:  # a sliver that rounds to no pixels, or one turned that has too many
        return
    again = parse(*request.canonical.split("/"), CANVAS, default="color")
    assert again == request
    assert again.canonical == request.canonical


def test_sizes_and_tiles_in_the_information_are_those_that_are_sent():
    canvas = Canvas(8000, 6000, 2**24)
    info = information("http://localhost/image", canvas, Facts((6000, 8000), grey=False, alpha=True))
    assert info["sizes"][-1] == {"width": 4000, "height": 3000}  # 8000×6000 is more than is sent at once
    for size in info["sizes"]:
        wanted = parse(
            "full", f"{size['width']},{size['height']}", "0", "default.jpg", canvas, default="color"
        )
        assert wanted.size == (size["width"], size["height"])
    assert info["tiles"][0]["scaleFactors"] == [1, 2, 4, 8, 16]
