"""Identifiers name images of the folder, and nothing else."""

import os

import pytest

from thera.errors import ImageFileError, UnknownImage
from thera.iiif.folder import Folder


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    root = tmp_path / "images"
    (root / "maps" / "old").mkdir(parents=True)
    for name in ("a.png", "maps/b c.jpg", "maps/old/ü.tif", "notes.txt", ".hidden.png", "plain", "c:8x.png"):
        (root / name).write_bytes(b"x")
    (root / "out.png").symlink_to(tmp_path / "secret.png")
    (root / "up").symlink_to(tmp_path)
    (root / "inside.png").symlink_to(root / "a.png")
    (root / "circle.png").symlink_to(root / "circle.png")
    os.mkfifo(root / "pipe.png")
    return root


@pytest.mark.parametrize(
    ("identifier", "name", "zoom"),
    [
        ("a.png", "a.png", 1),
        ("%61.png", "a.png", 1),
        ("maps%2Fb%20c.jpg", "maps/b c.jpg", 1),
        ("maps%2fold%2f%C3%BC.tif", "maps/old/ü.tif", 1),
        ("plain", "plain", 1),
        ("inside.png", "inside.png", 1),
        ("a.png:8x", "a.png", 8),
        ("a.png%3A2x", "a.png", 2),
        ("c:8x.png", "c:8x.png", 1),
        ("c:8x.png:4x", "c:8x.png", 4),
    ],
)
def test_identifier_names_a_file(tree, identifier, name, zoom):
    image = Folder(tree).find(identifier)
    assert (image.name, image.zoom) == (name, zoom)
    assert Folder(tree).find(image.identifier) == image


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        ".",
        "..",
        "..%2Fsecret.png",
        "maps%2F..%2F..%2Fsecret.png",
        "%2E%2E%2Fsecret.png",
        "..%5Csecret.png",
        "maps%2F..%2Fa.png",
        "%2Fetc%2Fpasswd",
        "%2F%2Fa.png",
        "maps%2F%2Fb c.jpg",
        "a.png%00",
        "a.png%00.jpg",
        "a%0A.png",
        "%FF%FE.png",
        "out.png",
        "up%2Fsecret.png",
        "circle.png",
        "pipe.png",
        "maps",
        "notes.txt",
        ".hidden.png",
        "nothing.png",
        "a.png%2F",
        "a.png:1x",
        "a.png:9x",
        "a.png:08888x",
        "x" * 5000 + ".png",
        "~root",
        "%252e%252e%252fsecret.png",
    ],
)
def test_identifier_of_anything_else_is_unknown(tree, identifier):
    with pytest.raises(UnknownImage):
        Folder(tree).find(identifier)


def test_list_has_the_images_and_no_way_out(tree):
    (tree / "maps" / ".private").mkdir()
    (tree / "maps" / ".private" / "x.png").write_bytes(b"x")
    folder = Folder(tree)
    names = list(folder.names())
    assert names == ["a.png", "c:8x.png", "inside.png", "maps/b c.jpg", "maps/old/ü.tif"]


def test_folder_that_is_none_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    for path in ("missing", "file"):
        with pytest.raises(ImageFileError):
            Folder(tmp_path / path)
