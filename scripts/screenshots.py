"""Pictures of every page of a server that runs: light, dark, and at the width of a phone.

    strop serve &
    python scripts/screenshots.py --url http://127.0.0.1:8100 --folder /tmp/pages

Without `--folder`, the few that docs/ui.md shows are made anew in docs/images. The run that they
show is the newest one with rollouts, or the one given by `--run`. Needs Chromium and `playwright`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import find_chromium, running

IMAGES = Path(__file__).parents[1] / "docs" / "images"
LARGEST_BYTES = 150_000
"""What a picture in the repository may weigh."""


@dataclass(frozen=True)
class Look:
    """How a page is looked at."""

    name: str
    width: int
    height: int
    scheme: Literal["light", "dark"]


LOOKS = (Look("light", 1280, 860, "light"), Look("dark", 1280, 860, "dark"), Look("phone", 390, 844, "light"))


def paths(http: httpx.Client, run: str | None) -> dict[str, str]:
    """Every page by name."""
    found = {
        name: f"/{name}"
        for name in ("datasets", "rewards", "evaluations", "deployments", "playground", "settings", "gallery")
    }
    found |= {"jobs": "/", "new-job": "/jobs/new", "new-evaluation": "/evaluate"}
    run = run or _newest_run(http)
    if run is None:
        return found
    experiment = f"/experiments/{run}"
    found["overview"] = experiment
    for tab in ("metrics", "rollouts", "checkpoints", "files", "logs"):
        found[tab] = f"{experiment}?tab={tab}"
    best = _data(http, f"/v1/strop/runs/{run}/rollouts?sort=-reward&limit=1")
    if best:
        found["step"] = f"{experiment}?tab=rollouts&by=step&step={best[0]['step']}"
        chosen = f"{experiment}?tab=rollouts&sort=-reward&row={best[0]['row']}&rollout={best[0]['id']}"
        found |= {"attempt": chosen, "group": f"{chosen}&show=group", "tokens": f"{chosen}&show=tokens"}
    return found


def _newest_run(http: httpx.Client) -> str | None:
    runs = _data(http, "/v1/strop/runs?limit=20")
    recorded = (run["id"] for run in runs if _data(http, f"/v1/strop/runs/{run['id']}/rollouts?limit=1"))
    return next(recorded, None)


def _data(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    answer = http.get(path)
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


SHOWN = (("jobs", "light"), ("overview", "light"), ("attempt", "dark"), ("metrics", "light"), ("attempt", "phone"))
"""What docs/ui.md shows."""


def take(browser: Browser, url: str, look: Look, wanted: dict[str, str], folder: Path, whole: bool) -> Iterator[Path]:
    """A picture of each page: of all of it, or of what a window shows."""
    context = browser.new_context(viewport={"width": look.width, "height": look.height}, color_scheme=look.scheme)
    page = context.new_page()
    for name, path in wanted.items():
        page.goto(url + path)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(1000)
        chosen = page.locator(".s-row--title").first
        if not whole and chosen.count():
            chosen.evaluate("element => scrollTo(0, element.getBoundingClientRect().top + scrollY - 16)")
            page.wait_for_timeout(200)
        file = folder / f"{name}-{look.name}.png"
        page.screenshot(path=file, full_page=whole)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            print(f"{file.name}: the page is wider than the window", file=sys.stderr)
        yield file
    context.close()


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--url", default="http://127.0.0.1:8100")
    options.add_argument("--run", help="id of the job or run that is shown")
    options.add_argument("--folder", type=Path, help="where pictures of all pages go, in full length")
    asked = options.parse_args()
    program = find_chromium()
    if program is None:
        raise SystemExit("no Chromium here: install it, or set STROP_CHROMIUM to the program")
    folder: Path = asked.folder or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with httpx.Client(base_url=asked.url, timeout=60) as http:
        found = paths(http, asked.run)
    large = 0
    with running(program) as browser:
        for look in LOOKS:
            kept = {name: path for name, path in found.items() if asked.folder or (name, look.name) in SHOWN}
            for file in take(browser, asked.url, look, kept, folder, whole=asked.folder is not None):
                size = file.stat().st_size
                large += asked.folder is None and size > LARGEST_BYTES
                print(f"{file}: {size // 1000} kB")
    return 1 if large else 0


if __name__ == "__main__":
    raise SystemExit(main())
