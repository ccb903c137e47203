"""Makes photo.png: a JPEG of quality 50 by bicubic interpolation, by the clean model, and by `photo`, at ×3.

python docs/images/photo.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
PART = (60, 0, 188, 96)
SCALE, QUALITY, GAP = 3, 50, 8


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.jpg"
        Image.open(HERE / "astronaut.png").convert("RGB").crop(PART).save(source, quality=QUALITY)
        given = Image.open(source)
        ways = [given.resize((SCALE * given.width, SCALE * given.height), Image.Resampling.BICUBIC)]
        for model in ("edsr-plus", "photo"):
            output = Path(folder) / f"{model}.png"
            command = ["upscale", str(source), str(output), "--scale", str(SCALE), "--model", model]
            subprocess.run([sys.executable, "-m", "thera", *command], check=True)
            ways.append(Image.open(output).convert("RGB"))
    width, height = ways[0].size
    sheet = Image.new("RGB", ((width + GAP) * len(ways) - GAP, height), "white")
    for column, image in enumerate(ways):
        sheet.paste(image, ((width + GAP) * column, 0))
    sheet.save(HERE / "photo.png", optimize=True)


if __name__ == "__main__":
    main()
