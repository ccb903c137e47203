"""An open picture takes what its file's samples do, and no float copy of all of it is ever made."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from thera.iiif.pictures import ServedPicture
from thera.imaging import files
from thera.imaging.picture import Picture
from thera.imaging.reading import read
from thera.web.gallery import Gallery
from thera.web.results import Order, write_result
from thera.web.tiles import TileRequest

HEIGHT, WIDTH = 3000, 4000
SAMPLES = 3 * HEIGHT * WIDTH
#: What bands, windows and files take, whatever the picture's size. As floats it would take 144 MB.
WORK = 24_000_000


@pytest.fixture(scope="module", params=["plain", "profile", "turned"])
def photo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.jpg"
    own = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exchanged = own.replace(b"rXYZ", b"????").replace(b"bXYZ", b"rXYZ").replace(b"????", b"bXYZ")
    exif = Image.Exif()
    exif[0x0112] = 6 if request.param == "turned" else 1
    colours = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    image = Image.fromarray(colours).resize((WIDTH, HEIGHT))
    image.save(path, exif=exif, icc_profile=exchanged if request.param == "profile" else None)
    return path


@pytest.fixture
def traced() -> object:
    """Python's and NumPy's memory is counted; Pillow's image while it is decoded is not."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def grown() -> tuple[int, int]:
    """Bytes held, and at most since the last call."""
    held = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    return held


def test_the_app_holds_a_picture_as_its_file_s_samples(photo: Path, traced: object) -> None:
    gallery = Gallery()
    grown()
    entry = gallery.add(photo)
    held, peak = grown()
    assert SAMPLES <= held < SAMPLES + 2_000_000 and peak < SAMPLES + WORK
    gallery.preview(entry)
    assert grown()[1] < held + 2 * WORK  # with the 13 MB that the preview has
    TileRequest((0.0, 0.0, HEIGHT / 2, WIDTH / 2), (64, 64), None).png(gallery, entry, "edsr-air")
    assert grown()[1] < held + 2 * WORK


def test_the_server_holds_a_picture_as_its_file_s_samples(photo: Path, traced: object) -> None:
    picture = ServedPicture.of(read(photo), "key", halo=34)
    held, peak = grown()
    assert SAMPLES <= held < SAMPLES + 2_000_000 and peak < SAMPLES + WORK
    assert picture.nbytes == SAMPLES


def test_transparency_is_put_on_white_in_bands(traced: object) -> None:
    samples = np.full((HEIGHT, WIDTH, 4), 128, np.uint8)
    grown()
    assert Picture.of_channels(samples).without_alpha().samples[0, 0].tolist() == [191, 191, 191]
    assert grown()[1] < 7 * HEIGHT * WIDTH + 5 * WORK  # in float32 it would be 16 bytes a pixel and more


def test_a_download_does_not_read_the_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "small.png"
    Image.fromarray(np.full((9, 7, 3), 50, np.uint8)).save(source)
    gallery = Gallery()
    entry = gallery.add(source)
    monkeypatch.setattr(files, "read", None)
    (tmp_path / "out").mkdir()
    written = write_result(gallery, entry, tmp_path / "out", Order(model="edsr-air", scale=2), lambda s: None)
    assert written.name == "small_x2.png"
    with Image.open(written) as image:
        assert image.size == (14, 18)
