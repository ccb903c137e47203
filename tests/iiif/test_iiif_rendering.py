"""What is sent is what the renderer draws, and what a user expects of the file."""

import io

import numpy as np
import pytest
import tifffile
from iiif_client import as_array
from PIL import ExifTags, Image, ImageCms

import thera

# A rounding to bytes is half a level, and half floats move a value by less than a tenth of one.
BYTES = 0.61


@pytest.fixture(scope="module")
def field(model, pixels):
    return model.encode(pixels.astype(np.float32) / 255)


def difference(sent: np.ndarray, rendered: np.ndarray) -> float:
    """The largest, in levels of 255."""
    return float(np.abs(sent - 255 * np.clip(rendered, 0, 1)).max())


def test_own_size_is_the_file_s_own_pixels(photo_server, pixels):
    np.testing.assert_array_equal(as_array(photo_server.get("photo.png/full/max/0/default.png")), pixels)
    part = as_array(photo_server.get("photo.png/10,20,30,40/max/0/default.png"))
    np.testing.assert_array_equal(part, pixels[20:60, 10:40])


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("full/^250,170", {"size": (170, 250)}),
        ("full/^pct:800", {"scale": 8}),
        ("7,5,40,30/^160,120", {"size": (120, 160), "region": (5, 7, 35, 47)}),
        ("full/80,50", {"size": (50, 80)}),
        ("full/^300,40", {"size": (40, 300)}),
    ],
)
def test_other_sizes_are_the_field_s_rendering(photo_server, field, path, options):
    sent = as_array(photo_server.get(f"photo.png/{path}/0/default.png"))
    assert difference(sent, field.render(**options)) < BYTES


def test_tiles_of_the_enlarged_image_are_parts_of_one_rendering(photo_server, field):
    whole = field.render(scale=8)
    for left, top in ((0, 0), (256, 0), (512, 256)):
        sent = as_array(photo_server.get(f"photo.png:8x/{left},{top},256,256/256,256/0/default.png"))
        assert difference(sent, whole[top : top + 256, left : left + 256]) < BYTES
    half = as_array(photo_server.get("photo.png:8x/0,0,512,512/256,256/0/default.png"))
    assert difference(half, field.render(scale=4)[:256, :256]) < BYTES
    info = photo_server.get("photo.png:8x/info.json").json()
    assert (info["width"], info["height"]) == (768, 512)


def test_half_size_and_less_need_no_field_and_look_the_same(serve, folder, field):
    running = serve(folder)
    for width in (48, 20, 7):
        sent = as_array(running.get(f"photo.png/full/{width},/0/default.png"))
        rendered = field.render(size=sent.shape[:2]) * 255
        assert np.sqrt(np.mean((sent - rendered) ** 2)) < 1.6  # levels; see `reduction`
    assert running.server.blocks.encoded == 0


def test_fine_stripes_become_grey_when_small(serve, tmp_path):
    stripes = np.zeros((120, 120, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    running = serve(tmp_path)
    for size in ("50,", "37,", "!23,23"):  # no moiré at sizes that beat against the stripes
        sent = as_array(running.get(f"stripes.png/full/{size}/0/default.png"))[2:-2, 2:-2].astype(float)
        assert np.abs(sent - 127.5).max() < 8


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_quarter_turns_and_mirrors_move_pixels_only(photo_server, pixels, degrees):
    turned = np.rot90(pixels, -degrees // 90)
    np.testing.assert_array_equal(
        as_array(photo_server.get(f"photo.png/full/max/{degrees}/default.png")), turned
    )
    mirrored = np.rot90(pixels[:, ::-1], -degrees // 90)
    np.testing.assert_array_equal(
        as_array(photo_server.get(f"photo.png/full/max/!{degrees}/default.png")), mirrored
    )


def turned(field, height: int, width: int, degrees: float, mirrored: bool = False) -> np.ndarray:
    """The whole field scaled to a size and turned clockwise, in the box that holds it: by one matrix."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    rows, cols = round(width * sin + height * cos), round(width * cos + height * sin)
    back = np.array([[cos, -sin], [sin, cos]]) * [[1], [-1 if mirrored else 1]]
    back *= np.array(field.shape)[:, None] / [[height], [width]]
    middle = np.array(field.shape) / 2 - back @ [rows / 2, cols / 2]
    return field.warp(np.column_stack([back, middle]), (rows, cols))


@pytest.mark.parametrize(("size", "scale"), [("max", 1.0), ("^pct:250", 2.5), ("pct:70", 0.7)])
@pytest.mark.parametrize("mirrored", ["", "!"])
def test_any_rotation_is_the_field_s_exact_warp(photo_server, field, size, scale, mirrored):
    sent = as_array(photo_server.get(f"photo.png/full/{size}/{mirrored}30/default.png"))
    height, width = round(64 * scale), round(96 * scale)
    warped = turned(field, height, width, 30, bool(mirrored))
    assert sent.shape == (*warped.shape[:2], 4)
    inside = sent[..., 3] == 255
    # All but a pixel or so along each side; and the corners of the box show what is behind.
    assert height * width - 2 * (height + width) < inside.sum() < height * width
    assert sent[0, 0, 3] == sent[-1, -1, 3] == 0
    assert difference(sent[inside][:, :3], warped[inside]) < BYTES


def test_large_reductions_turn_the_reduced_picture(serve, tmp_path, pixels, model):
    Image.fromarray(np.tile(pixels, (4, 4, 1))).save(tmp_path / "large.png")
    running = serve(tmp_path)
    flat = as_array(running.get("large.png/full/96,64/0/default.png"))
    assert running.server.blocks.encoded == 0
    sent = as_array(running.get("large.png/full/96,64/30/default.png"))
    assert running.server.blocks.encoded == 1  # 96×64 cells and not 384×256
    inside = sent[..., 3] == 255
    warped = turned(model.encode(flat.astype(np.float32) / 255), 64, 96, 30)
    assert difference(sent[inside][:, :3], warped[inside]) < BYTES


def test_a_strip_is_sent_small_and_turned(serve, tmp_path):
    Image.fromarray(np.linspace(0, 255, 500).astype(np.uint8)[:, None]).save(tmp_path / "tall.png")
    running = serve(tmp_path)
    small = as_array(running.get("tall.png/full/^!50,50/0/default.png"))
    assert small.shape == (50, 1)
    np.testing.assert_allclose(small[2:-2, 0], np.linspace(0, 255, 500).reshape(50, 10).mean(1)[2:-2], atol=2)
    assert as_array(running.get("tall.png/full/^!50,50/30/gray.jpg")).shape == (44, 26)


def test_qualities(photo_server, pixels):
    grey = as_array(photo_server.get("photo.png/full/max/0/gray.png"))
    np.testing.assert_allclose(grey, pixels @ [0.299, 0.587, 0.114], atol=0.51)
    two = as_array(photo_server.get("photo.png/full/max/0/bitonal.png"))
    np.testing.assert_array_equal(two, np.where(grey < 128, 0, 255))
    for form, mode in (("jpg", "RGB"), ("webp", "RGB"), ("png", "RGB")):
        image = Image.open(io.BytesIO(photo_server.get(f"photo.png/full/max/0/color.{form}").content))
        assert image.mode == mode and image.size == (96, 64)


def test_grey_stays_grey_and_is_its_default(serve, tmp_path, pixels):
    Image.fromarray(pixels).convert("L").save(tmp_path / "grey.png")
    running = serve(tmp_path)
    for path in ("full/max/0/default.png", "full/^pct:200/0/color.png", "full/max/30/default.jpg"):
        assert as_array(running.get(f"grey.png/{path}")).ndim == 2
    assert running.get("grey.png/info.json").json()["extraQualities"] == ["gray", "bitonal"]
    link = running.get("grey.png/full/max/0/gray.png").headers["link"]
    assert "/full/max/0/default.png" in link


@pytest.fixture
def cut_out(pixels) -> np.ndarray:
    """A disc, opaque, and nothing around it; what is stored there is black."""
    rows, cols = np.mgrid[:64, :96]
    disc = (rows - 32) ** 2 + (cols - 48) ** 2 < 20**2
    alpha = np.where(disc, 255, 0).astype(np.uint8)
    return np.dstack([pixels * disc[..., None], alpha]).astype(np.uint8)


def test_nodata_is_transparent_and_does_not_flatten_the_rest(serve, tmp_path):
    values = np.linspace(100, 900, 24 * 32, dtype=np.float32).reshape(24, 32)
    values[:6, :8] = -9999
    tifffile.imwrite(tmp_path / "dem.tif", values, extratags=[(42113, 2, 0, "-9999", True)])
    running = serve(tmp_path)
    for size, scale in (("max", 1), ("^64,", 2)):
        seen = as_array(running.get(f"dem.tif/full/{size}/0/default.png"))
        assert (seen[: 5 * scale, : 7 * scale, -1] == 0).all() and (seen[8 * scale :, :, -1] == 255).all()
        assert seen[-1, -1, 0] > 250 and seen[7 * scale, 0, 0] < 90


def test_transparency_is_as_thera_scales_it(serve, tmp_path, cut_out):
    Image.fromarray(cut_out).save(tmp_path / "cut.png")
    running = serve(tmp_path)
    assert running.get("cut.png/info.json").json()["preferredFormats"][0] == "webp"
    sent = as_array(running.get("cut.png/full/^pct:300/0/default.png"))
    expected = thera.upscale(cut_out, 3, model=running.server.blocks.model)
    shows = expected[..., 3] > 0
    assert np.abs(sent[..., 3].astype(int) - expected[..., 3]).max() <= 1
    assert np.abs(sent[shows].astype(int) - expected[shows]).max() <= 1
    white = as_array(running.get("cut.png/full/^pct:300/0/default.jpg"))
    assert white[:5].min() > 250  # JPEG has no transparency: on white
    turned = as_array(running.get("cut.png/full/^pct:200/45/default.webp"))
    assert set(np.unique(turned[..., 3])) >= {0, 255}
    assert turned[turned.shape[0] // 2, turned.shape[1] // 2, 3] == 255


def test_colours_arrive_as_srgb_whatever_the_file_s_profile(serve, tmp_path, pixels):
    image = Image.fromarray(pixels)
    own = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    # A profile whose red is sRGB's blue: a file of exchanged channels shows what the other does.
    exchanged = own.replace(b"rXYZ", b"????").replace(b"bXYZ", b"rXYZ").replace(b"????", b"bXYZ")
    image.save(tmp_path / "own.png", icc_profile=own)
    image.save(tmp_path / "broken.png", icc_profile=b"no profile")
    Image.fromarray(pixels[..., ::-1].copy()).save(tmp_path / "exchanged.png", icc_profile=exchanged)
    running = serve(tmp_path)
    sent = {
        name: as_array(running.get(f"{name}.png/full/max/0/default.png"))
        for name in ("own", "broken", "exchanged")
    }
    np.testing.assert_array_equal(sent["own"], pixels)
    np.testing.assert_array_equal(sent["broken"], pixels)
    assert np.abs(sent["exchanged"].astype(int) - pixels).max() <= 3  # the conversion's own rounding
    jpeg = Image.open(io.BytesIO(running.get("exchanged.png/full/max/0/default.jpg").content))
    assert "icc_profile" not in jpeg.info


def test_orientation_depth_and_inks_arrive_as_a_viewer_shows_them(serve, tmp_path, pixels):
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[int(ExifTags.Base.Orientation)] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    import imagecodecs

    deep = imagecodecs.png_encode(pixels.astype(np.uint16) * 257)
    (tmp_path / "deep.png").write_bytes(deep)
    image.convert("CMYK").save(tmp_path / "inks.tif")
    running = serve(tmp_path)
    info = running.get("turned.png/info.json").json()
    assert (info["width"], info["height"]) == (64, 96)
    turned = as_array(running.get("turned.png/full/max/0/default.png"))
    np.testing.assert_array_equal(turned, np.rot90(pixels, -1))
    np.testing.assert_array_equal(as_array(running.get("deep.png/full/max/0/default.png")), pixels)
    inks = as_array(running.get("inks.tif/full/max/0/default.png"))
    assert np.abs(inks.astype(int) - pixels).max() <= 2  # four inks and back, each rounded
