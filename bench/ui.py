"""How fast the pages are: one run of 10,000 steps and 17,000 prompts, in Chromium, against targets.

Needs Chromium ($STROP_CHROMIUM, or the system's) and the package `playwright`. Times are those of
a person: from the click, or the letter that was typed, to the picture.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, Position

from strop.config import parse_config
from strop.store.files import json_line
from strop.store.rundir import RunDir, RunState
from synthetic_runs import METRICS, prompt, tail

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import find_chromium, running
from server_process import serving, strop

STEPS, WITH_ROLLOUTS = 10_000, 200
PROMPTS, ATTEMPTS = 85, 16
"""Prompts of a step with one rollout each, and rollouts of the one prompt that is in every step."""
FOCUS = "000000000000"
NEEDLE = "Question 16384:"
CELL, LEFT, TOP = 20, 2, 20
"""Of the heat map, in pixels: as in heat_map.js."""
WIDTH, HEIGHT = 1280, 900
_REST_MS = 250.0
IDLE_S = 20.0

# Milliseconds from an event to the frame that shows what a selector then finds with a text in it.
_WATCH = """
([kind, selector, text]) => {
  window.took = new Promise((done) => {
    addEventListener(kind, (event) => {
      const began = event.timeStamp;
      const look = () => {
        const found = [...document.querySelectorAll(selector)].some((element) => element.textContent.includes(text));
        if (!found) return requestAnimationFrame(look);
        requestAnimationFrame(() => done(performance.now() - began));
      };
      look();
    }, { capture: true, once: true });
  });
}
"""
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_DRAWN = "performance.getEntriesByName('strop-charts').at(-1)?.duration"


@dataclass(frozen=True)
class Row:
    """One line of the result."""

    name: str
    values: list[float]
    target: float
    unit: str = "ms"

    @property
    def held(self) -> bool:
        """Whether the median is within the target."""
        return median(self.values) < self.target

    def __str__(self) -> str:
        verdict = "" if self.held else "  MISSED"
        worst = max(self.values)
        return f"{self.name:<52} {median(self.values):8.1f} {worst:8.1f}   < {self.target:g} {self.unit}{verdict}"


def build(folder: Path, chance: random.Random) -> None:
    """The run folder: one prompt in each of 200 steps, 16 times; 17,000 others once."""
    reward = {"name": "score", "source": "reward.py:score"}
    run = RunDir.create(
        folder, parse_config({"name": "bench", "model": "smollm2-135m", "data": {"train": "rows"}, "rewards": [reward]})
    )
    tails = [tail(chance) for _ in range(500)]
    focus = prompt(0, chance)
    with open(run.metrics_file, "w", encoding="utf-8") as metrics:
        for step in range(1, STEPS + 1):
            if step <= WITH_ROLLOUTS:
                first = 1 + (step - 1) * PROMPTS
                others = [(number, 0, prompt(number, chance)) for number in range(first, first + PROMPTS)]
                lines = [*((0, sample, focus) for sample in range(ATTEMPTS)), *others]
                text = "".join(_rollout(step, *line, chance.choice(tails), chance) for line in lines)
                run.rollout_file(step).write_text(text, encoding="utf-8")
            metrics.write(json_line({"step": step, **{name: chance.random() for name in METRICS}}))
    run.set_status(RunState.SUCCEEDED, step=STEPS, total_steps=STEPS)


def _rollout(step: int, number: int, sample: int, asked: str, rest: str, chance: random.Random) -> str:
    form, fact = chance.random(), chance.randrange(2)
    return (
        f'{{"step":{step},"row":"{number:012x}","line":{number + 1},"sample":{sample},"reward":{form + fact},'
        f'"components":{{"form":{form},"fact":{fact}}},"weights":{{"form":1.0,"fact":1.0}},'
        f'"advantage":{form - 0.5},{asked},{rest}\n'
    )


@contextmanager
def new_page(browser: Browser) -> Iterator[Page]:
    """A page with nothing in its cache."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    try:
        yield context.new_page()
    finally:
        context.close()


def first_paint(browser: Browser, address: str, times: int) -> Iterator[Row]:
    """Cold: the first paint, and the charts from their data to the picture."""
    painted, drawn, whole = [], [], []
    for _ in range(times):
        with new_page(browser) as page:
            page.goto(address)
            page.wait_for_function(_DRAWN)
            painted.append(float(page.evaluate(_PAINTED)))
            drawn.append(float(page.evaluate(_DRAWN)))
            whole.append(float(page.evaluate("performance.getEntriesByName('strop-charts').at(-1).startTime")))
    yield Row("experiment page, first paint, cold", painted, 1200)
    yield Row("charts of 10,000 steps, from data to picture", drawn, 300)
    print(f"(curves on the screen {median(a + b for a, b in zip(drawn, whole, strict=True)):.0f} ms after the start)")


def smoothing(page: Page, address: str, times: int) -> Row:
    """All charts of the metrics tab drawn again for another smoothing, with the way to the server and back."""
    page.goto(f"{address}?tab=metrics")
    page.wait_for_function(_DRAWN)
    drawn = []
    for turn in range(times):
        page.evaluate("performance.clearMeasures('strop-charts')")
        page.get_by_label("Smoothing").fill(f"{0.1 + turn / 20:.2f}")
        page.wait_for_function(_DRAWN)
        drawn.append(float(page.evaluate(_DRAWN)))
    return Row("14 charts of 10,000 steps, drawn again", drawn, 300)


def heat_map(page: Page, address: str, times: int, chance: random.Random) -> Iterator[Row]:
    """On the map of 200 x 16: a click, and an arrow key, until the attempt stands beside it.

    A pointer comes to rest before it clicks, and the page reads ahead meanwhile; keys come four a second.
    """
    page.goto(f"{address}?tab=rollouts&row={FOCUS}")
    canvas = page.locator(".s-heat canvas")
    canvas.wait_for()
    page.wait_for_timeout(1500)
    left = int(page.locator(".s-heat-scroll").evaluate("element => element.scrollLeft"))
    took = []
    for _ in range(times):
        column, attempt = left // CELL + chance.randrange(4, 20), chance.randrange(ATTEMPTS)
        wanted = f"Step {column + 1}, attempt {attempt + 1}"
        page.evaluate(_WATCH, ["click", ".s-inspector h2", wanted])
        place: Position = {"x": LEFT + column * CELL + 9, "y": TOP + attempt * CELL + 9}
        canvas.hover(position=place)
        page.wait_for_timeout(_REST_MS)
        canvas.click(position=place)
        took.append(float(page.evaluate("window.took")))
    yield Row("heat map of 200 x 16, click to inspector", took, 100)
    keyed = []
    for turn in range(times):
        key = "ArrowRight" if turn < times // 2 else "ArrowLeft"
        column += 1 if key == "ArrowRight" else -1
        page.evaluate(_WATCH, ["keydown", ".s-inspector h2", f"Step {column + 1}, attempt {attempt + 1}"])
        page.keyboard.press(key)
        keyed.append(float(page.evaluate("window.took")))
        page.wait_for_timeout(_REST_MS)
    yield Row("heat map of 200 x 16, arrow key to inspector", keyed, 100)


def search(page: Page, address: str, times: int) -> Row:
    """The last letter typed until the one prompt of 17,000 stands there, with the wait for more letters."""
    page.goto(f"{address}?tab=rollouts")
    field = page.get_by_label("Search prompts")
    field.wait_for()
    took = []
    for _ in range(times):
        field.fill("")
        page.get_by_text("50 of 17001 prompts").wait_for()
        page.evaluate(_WATCH, ["input", "[aria-live]", "1 of 1 prompts"])
        field.fill(NEEDLE)
        took.append(float(page.evaluate("window.took")))
    return Row("17,001 prompts, letter to result", took, 300)


def idle(page: Page, address: str, name: str) -> Row:
    """Bytes a second, of requests and of the socket, while nobody does anything."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    page.goto(address)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(3000)
    count = 0.0

    def add(size: Callable[[dict[str, Any]], float]) -> Callable[[dict[str, Any]], None]:
        def heard(event: dict[str, Any]) -> None:
            nonlocal count
            count += size(event)

        return heard

    session.on("Network.loadingFinished", add(lambda event: event["encodedDataLength"]))
    for way in ("Received", "Sent"):
        session.on(f"Network.webSocketFrame{way}", add(lambda event: len(event["response"]["payloadData"])))
    page.wait_for_timeout(IDLE_S * 1000)
    return Row(f"traffic of an idle {name}", [count / IDLE_S], 1024, "B/s")


def measure(address: str, url: str, times: int, chance: random.Random) -> Iterator[Row]:
    """Every measurement, in one browser."""
    program = find_chromium()
    if program is None:
        raise SystemExit("no Chromium here: install it, or set STROP_CHROMIUM to the program")
    with running(program) as browser:
        yield from first_paint(browser, address, times)
        with new_page(browser) as page:
            yield smoothing(page, address, times)
            yield from heat_map(page, address, 4 * times, chance)
            yield search(page, address, times)
            yield idle(page, address, "experiment page")
            yield idle(page, url, "list of jobs")


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--times", type=int, default=5, help="how often each is measured")
    options.add_argument("--seed", type=int, default=17)
    asked = options.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="strop-bench-") as temporary:
        folder, data = Path(temporary) / "run", Path(temporary) / "data"
        start = time.perf_counter()
        build(folder, chance)
        imported = strop("runs", "import", folder, "--data-dir", data)
        if imported.returncode:
            raise SystemExit(imported.stderr)
        load = os.getloadavg()[0]
        print(f"made and imported in {time.perf_counter() - start:.0f} s; load {load:.1f} on {os.cpu_count()} cores")
        missed = 0
        with serving(data) as server:
            run = server.http.get("/v1/strop/runs").json()["data"][0]["id"]
            print(f"{'':<52} {'median':>8} {'worst':>8}   target")
            for row in measure(f"{server.url}/experiments/{run}", server.url, asked.times, chance):
                print(row, flush=True)
                missed += not row.held
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
