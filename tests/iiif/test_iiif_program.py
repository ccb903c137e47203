"""`thera serve` as a program, up to where it listens."""

import pytest
import uvicorn

from thera.cli.main import run
from thera.cli.serve import default_cache


def test_program_refuses_what_is_no_folder(tmp_path, capfd):
    with pytest.raises(SystemExit) as ended:
        run(["serve", str(tmp_path / "missing"), "--no-cache"])
    assert ended.value.code == 1
    assert "missing cannot be served" in capfd.readouterr().err


def test_program_serves_the_folder_with_its_options(folder, tmp_path, capfd, monkeypatch):
    started = {}
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: started.update(app=app, **options))
    with pytest.raises(SystemExit) as ended:
        run(["serve", str(folder), "--port", "1234", "--cache", str(tmp_path / "cache"), "--memory", "5MB"])
    assert ended.value.code == 0
    assert (started["host"], started["port"]) == ("127.0.0.1", 1234)
    assert "1 image at http://127.0.0.1:1234/" in capfd.readouterr().out
    assert (tmp_path / "cache").is_dir()


def test_fields_are_kept_where_the_system_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "thera" / "fields"
