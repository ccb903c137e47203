"""The pages' modules have types, keep to the rules of a linter, and are accessible to everyone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from app_page import ASTRONAUT, drop, opened, program, wait_live
from needs import missing, module

from thera.models import shipped

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TOOLS = {
    "types": ("typescript/bin/tsc", "-p", "tests/browser/tsconfig.json"),
    "rules": (
        "eslint/bin/eslint.js",
        "-c",
        "tests/browser/eslint.config.mjs",
        "src/thera/web/page",
        "src/thera/pages",
        "src/thera/site/page",
        "src/thera/site/compute",
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_the_modules_of_the_pages_are_sound(tool: str) -> None:
    program, *arguments = TOOLS[tool]
    node = shutil.which("node")
    if node is None:
        missing("this test needs Node.js")
    done = subprocess.run(
        [node, str(module(program)), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


TITLES = """
const { titleOf, describeModel, INITIAL } = await import(process.argv[1]);
const said = process.argv.slice(2).map((name) => [titleOf(name), describeModel(INITIAL, name).note]);
console.log(JSON.stringify(said));
"""


def test_every_shipped_model_has_a_title_of_its_own_and_says_what_it_is_good_for() -> None:
    node = shutil.which("node")
    if node is None:
        missing("this test needs Node.js")
    names = [model.name for model in shipped()]
    page = (ROOT / "src/thera/web/page/state.js").as_uri()
    done = subprocess.run(
        [node, "--input-type=module", "-e", TITLES, page, *names], capture_output=True, text=True, check=True
    )
    titles, notes = zip(*json.loads(done.stdout), strict=True)
    assert len(set(titles)) == len(names) and not set(notes) & set(names)


AXE = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.map(({ id, nodes }) => [id, nodes.map(({ target }) => target.join(" "))]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_and_nothing_is_cut_off(browser: Any, width: int, scheme: str) -> None:
    axe = module("axe-core/axe.min.js")
    size = {"width": width, "height": 800}
    with program() as url:
        # The page's own rules let no script in, not even a test's.
        page = opened(browser, url, viewport=size, color_scheme=scheme, bypass_csp=True)
        page.add_script_tag(path=str(axe))
        assert page.evaluate(AXE) == []
        drop(
            page, ("notes.txt", b"none"), ("a.png", ASTRONAUT.read_bytes()), ("b.png", ASTRONAUT.read_bytes())
        )
        wait_live(page)
        if width < 700:
            page.click("#more")
        page.locator("summary").click()
        page.get_by_text("Own", exact=True).click()
        page.select_option("#format", "jpeg")
        page.click("#download-all")
        page.wait_for_selector("#jobs [data-state=done]")
        page.select_option("#other", "bicubic")
        page.get_by_role("slider", name="Curtain").wait_for()
        assert page.evaluate(AXE) == []
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        aside = "document.getElementById('settings')"
        assert page.evaluate(f"() => {aside}.scrollWidth <= {aside}.clientWidth")
        page.context.close()
