"""Does a list of 100,000 rows in the console scroll smoothly?

    python -m benchmarks.console_lists [--rows 100000] [--frames 180] [--rounds 3]

Chromium shows the list of topics; this program sends the rows in place of a broker. The list is
scrolled by two screens in every frame, then by two rows in every frame. The benchmark measures how
long each frame takes, how long the main thread works for it, and how much of this work is scripts,
styles and layout. Without a graphics card, the processor draws the pixels, and each frame waits for
this. The number of frames a second then depends more on the machine than on the page, and only the
main thread's milliseconds show what the page costs. At 60 frames a second, a frame has 16.7 ms.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import load, report
from compat_tests.brokers import OttlaBroker
from compat_tests.requirements import program
from tests.console.consoles import Console

STEPS = {"two screens a frame": 1500, "two rows a frame": 56}
"""Pixels per frame."""
WORK = {
    "TaskDuration": "main thread", "ScriptDuration": "scripts",
    "RecalcStyleDuration": "styles", "LayoutDuration": "layout",
}
FRAMES = """
([step, count]) => new Promise((done) => {
  const box = document.querySelector(".scroll"), frames = [];
  const tasks = [];
  let before = 0;
  const watcher = new PerformanceObserver((list) => tasks.push(...list.getEntries()));
  watcher.observe({ type: "longtask" });
  const next = (now) => {
    if (before) frames.push(now - before);
    before = now;
    box.scrollTop += step;
    if (frames.length < count) requestAnimationFrame(next);
    else setTimeout(() => { watcher.disconnect(); done({ frames, tasks: tasks.length }); });
  };
  requestAnimationFrame(next);
})
"""
CAME = """
    const parse = JSON.parse;
    JSON.parse = (text) => { if (text.includes('"path":"/topics"'))
      window.came ??= performance.now(); return parse(text); };
    const drawn = () => setTimeout(() => { window.shown ??= performance.now(); });
    new MutationObserver(() => { if (!window.shown && document.querySelector("tr.row"))
      requestAnimationFrame(drawn); })
      .observe(document, { childList: true, subtree: true });
"""
Figures = dict[str, list[float]]


@contextmanager
def opened(playwright: Any) -> Iterator[Any]:
    """An empty page in a new browser."""
    browser = playwright.chromium.launch(
        executable_path=program("chromium"), args=["--no-sandbox"])
    try:
        yield browser.new_page(viewport={"width": 1280, "height": 800})
    finally:
        browser.close()


def drawn(page: Any, url: str) -> float:
    """Open the list of topics; returns the seconds from its data's arrival until it is shown."""
    page.add_init_script(CAME)
    page.goto(url)
    page.wait_for_function("() => window.shown && window.came", timeout=300_000)
    found: float = page.evaluate("() => (window.shown - window.came) / 1000")
    return found


def scrolled(page: Any, frames: int) -> Figures:
    """Scroll the list that a page shows, in large and in small steps; returns the figures."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def worked() -> dict[str, float]:
        return {one["name"]: one["value"] * 1000
                for one in devtools.send("Performance.getMetrics")["metrics"]}

    found: Figures = {}
    for name, step in STEPS.items():
        page.evaluate("() => { document.querySelector('.scroll').scrollTop = 0; }")
        before = worked()
        taken = page.evaluate(FRAMES, [step, frames])
        after = worked()
        found[f"{name}: frames a second"] = [1000 / median(taken["frames"])]
        found[f"{name}: tasks longer than 50 ms in {frames} frames"] = [taken["tasks"]]
        for metric, what in WORK.items():
            found[f"{name}: {what}, ms a frame"] = [(after[metric] - before[metric]) / frames]
    return found


def stream_of(rows: int) -> str:
    """The event with a list of that many topics."""
    topics = [{
        "topic": f"topic-{number:06}", "internal": False, "partitions": 10, "replicas": 3,
        "out_of_sync": 0, "leaderless": 0, "records": number * 37, "bytes": number * 4096,
        "records_per_second": number % 50_000, "lag": number % 1000,
        "slowest_group": f"group-{number % 700}",
    } for number in range(rows)]
    event = {"path": "/topics", "value": {"key": "topic", "pending": [], "rows": topics}}
    text = json.dumps(event, separators=(",", ":"))
    return f"retry: 100000000\nevent: change\ndata: {text}\n\n"


def measure(rows: int, frames: int, rounds: int) -> Figures:
    """Measure everything; returns the values of each figure, by its name."""
    from playwright.sync_api import sync_playwright

    body, found = stream_of(rows), Figures()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        broker = OttlaBroker(Path(folder))
        with load.running(broker), Console(broker.bootstrap, Path(folder)) as console:
            for _ in range(rounds):
                with opened(playwright) as page:
                    page.route("**/api/v1/stream*", lambda route: route.fulfill(
                        content_type="text/event-stream", body=body))
                    shown = drawn(page, f"{console.url}/topics")
                    once = {"from the arrival of the data until they are shown, s": [shown]}
                    for name, values in (once | scrolled(page, frames)).items():
                        found.setdefault(name, []).extend(values)
    return found


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=180)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.rows, options.frames, options.rounds)
    rows = [[name, report.spread(values)] for name, values in found.items()]
    report.write(
        "Does a long list in the console scroll smoothly?", "console-lists",
        f"{options.rows} rows. The list is scrolled by two screens or by two rows in each frame."
        "\n\n"
        f"{report.table(['', 'median (range)'], rows)}", found)


if __name__ == "__main__":
    main()
