"""The one path from a picture of any size to pixels: source → `TiledField` → sink."""

from thera.tiled.field import Strip, TiledField
from thera.tiled.options import Options
from thera.tiled.plan import Plan, make_plan, tile_side
from thera.tiled.source import ArraySource, Source

__all__ = ["ArraySource", "Options", "Plan", "Source", "Strip", "TiledField", "make_plan", "tile_side"]
