"""`thera serve` as a program, up to where it listens."""

import pytest

from thera.cli.main import run
from thera.files import cache_folder
from thera.iiif import running


def test_program_refuses_what_is_no_folder(tmp_path, capfd):
    with pytest.raises(SystemExit) as ended:
        run(["serve", str(tmp_path / "missing"), "--no-cache"])
    assert ended.value.code == 1
    assert "missing cannot be served: no such file" in capfd.readouterr().err


def test_program_refuses_an_address_that_no_client_could_ask(folder, capfd, monkeypatch):
    monkeypatch.setattr(running, "run", lambda *given: None)
    with pytest.raises(SystemExit) as ended:
        run(["serve", str(folder), "--port", "0", "--no-cache", "--url", "images.example.org"])
    assert ended.value.code == 2
    assert "'images.example.org' is no address" in capfd.readouterr().err


def test_program_serves_the_folder_with_its_options(folder, tmp_path, capfd, monkeypatch):
    started = {}
    monkeypatch.setattr(running, "run", lambda *given: started.update(given=given))
    with pytest.raises(SystemExit) as ended:
        run(["serve", str(folder), "--port", "0", "--cache", str(tmp_path / "cache"), "--memory", "5MB"])
    assert ended.value.code == 0
    server, _, quiet = started["given"]
    assert (server.settings.memory, quiet) == (5_000_000, False)
    out = capfd.readouterr().out
    assert "1 image at http://127.0.0.1:" in out and "/iiif/3/collection.json" in out
    assert (tmp_path / "cache").is_dir()


def test_fields_are_kept_where_the_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "thera"
