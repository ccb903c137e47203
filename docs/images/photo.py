"""Makes photo.jpg: four damaged pictures at ×3 by bicubic interpolation, by the clean model and by `photo`.

The face is a part of astronaut.png, the text is drawn here, the leaves and the night are grass.png (CC0) and
rocket.jpg (SpaceX, in the public domain) of scikit-image: pip install scikit-image pillow

python docs/images/photo.py
"""

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

HERE = Path(__file__).parent
SIZE, SCALE, GAP, QUALITY = (128, 96), 3, 8, 50
NOISE = 8  # of 255: a night at a high sensitivity
WORDS = "the quick brown fox\njumps over the lazy\ndog 0123456789\n(it is not amused)"


def part(path: Path, left: int, top: int, reduced: int = 1) -> Image.Image:
    with Image.open(path) as image:
        box = (left, top, left + SIZE[0] * reduced, top + SIZE[1] * reduced)
        return image.convert("RGB").crop(box).resize(SIZE, Image.Resampling.LANCZOS)


def text() -> Image.Image:
    large = Image.new("RGB", (SIZE[0] * 4, SIZE[1] * 4), (250, 248, 240))
    draw = ImageDraw.Draw(large)
    draw.multiline_text((20, 24), WORDS, (40, 40, 60), ImageFont.load_default(48), spacing=28)
    return large.resize(SIZE, Image.Resampling.LANCZOS)


def noisy(image: Image.Image) -> Image.Image:
    noise = np.random.default_rng(0).normal(0, NOISE, np.asarray(image).shape)
    return Image.fromarray((np.asarray(image) + noise).round().clip(0, 255).astype(np.uint8))


def main() -> None:
    found = find_spec("skimage")
    if found is None or found.origin is None:
        sys.exit("scikit-image is missing: pip install scikit-image")
    data = Path(found.origin).parent / "data"
    pictures = {
        "face.jpg": part(HERE / "astronaut.png", 60, 0),
        "text.jpg": text(),
        "leaves.jpg": part(data / "grass.png", 96, 96, reduced=2),
        "night.png": noisy(part(data / "rocket.jpg", 150, 235, reduced=2)),
    }
    width, height = SCALE * SIZE[0], SCALE * SIZE[1]
    sheet = Image.new("RGB", (3 * (width + GAP) - GAP, len(pictures) * (height + GAP) - GAP), "white")
    with tempfile.TemporaryDirectory() as folder:
        for row, (name, picture) in enumerate(pictures.items()):
            source = Path(folder) / name
            picture.save(source, quality=QUALITY)
            with Image.open(source) as given:
                ways = [given.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)]
            for model in ("edsr-plus", "photo"):
                output = Path(folder) / f"{source.stem}-{model}.png"
                command = ["upscale", source, output, "--scale", SCALE, "--model", model]
                subprocess.run([sys.executable, "-m", "thera", *map(str, command)], check=True)
                with Image.open(output) as image:
                    ways.append(image.convert("RGB"))
            for column, image in enumerate(ways):
                sheet.paste(image, ((width + GAP) * column, (height + GAP) * row))
    sheet.save(HERE / "photo.jpg", quality=92, subsampling=0)


if __name__ == "__main__":
    main()
