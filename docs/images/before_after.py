"""Makes before_after.png: a part of astronaut.png as it is, by bicubic interpolation, and by `thera upscale`.

python docs/images/before_after.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
PARTS = [(84, 14, 180, 110), (52, 148, 148, 244)]  # the face; the sleeve and its patch
SCALE = 4
GAP = 8


def main() -> None:
    source = Image.open(HERE / "astronaut.png")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "scaled.png"
        command = ["upscale", str(HERE / "astronaut.png"), str(output), "--scale", str(SCALE)]
        subprocess.run([sys.executable, "-m", "thera", *command], check=True)
        scaled = Image.open(output).convert("RGB")
    ways = [
        source.resize(scaled.size, Image.Resampling.NEAREST),
        source.resize(scaled.size, Image.Resampling.BICUBIC),
        scaled,
    ]
    side = SCALE * (PARTS[0][2] - PARTS[0][0])
    width, height = ((side + GAP) * n - GAP for n in (len(ways), len(PARTS)))
    sheet = Image.new("RGB", (width, height), "white")
    for row, part in enumerate(PARTS):
        for col, image in enumerate(ways):
            crop = image.crop(tuple(SCALE * edge for edge in part))
            sheet.paste(crop, ((side + GAP) * col, (side + GAP) * row))
    sheet.save(HERE / "before_after.png", optimize=True)


if __name__ == "__main__":
    main()
