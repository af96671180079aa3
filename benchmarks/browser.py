"""Headless Chromium over its debugging protocol: open a page, run script in it, take pictures of it.

    python -m benchmarks.browser

measures what a reader of a report's trials waits for, on made-up searches of 50, 10,000 and 100,000 trials.
"""

import argparse
import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pandas as pd

from contrasweep.reporting import ReportData, html_report
from contrasweep.results.building import DecisionRule, build_table
from contrasweep.statistics.design import Design
from contrasweep.storage.study_document import StudyDocument

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)
LAPTOP = (1366, 768)
PHONE = (390, 844)


def chromium() -> str | None:
    """Path of the Chromium that is installed; None without one."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class Page:
    """One tab of Chromium, driven over the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._count = 0
        self._events = list[dict[str, Any]]()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        mine = self._count
        await self._socket.send_json({"id": mine, "method": method, "params": params})
        while (message := await self._next()).get("id") != mine:
            self._events.append(message)
        if "error" in message:
            raise RuntimeError(message["error"])
        return dict(message["result"])

    async def open(self, address: str) -> float:
        """Go to `address`, and return the seconds until everything in it is loaded."""
        await self.call("Page.enable")
        self._events.clear()
        began = time.perf_counter()
        await self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(await self._next())
        return time.perf_counter() - began

    async def js(self, code: str) -> Any:
        """Evaluate JavaScript `code` in the page and return its value; a promise is awaited."""
        done = await self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"])
        return done["result"].get("value")

    async def milliseconds(self, code: str) -> tuple[float, float]:
        """Run JavaScript `code`, and return the milliseconds until the first frame and until the second, which shows
        all.
        """
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        first = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
        taken = await self.js(
            f"(async () => {{await {frames}; const t = performance.now(); {code}; const all = {frames}; "
            f"const one = await {first}; await all; return [one - t, performance.now() - t]}})()"
        )
        return float(taken[0]), float(taken[1])

    async def processor_ms(self) -> float:
        """Milliseconds of processor that the page's main thread has used since it was opened."""
        await self.call("Performance.enable", timeDomain="threadTicks")
        metrics = (await self.call("Performance.getMetrics"))["metrics"]
        return 1000 * next(
            float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration"
        )

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def dark(self, on: bool = True) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, to: Path, top: float = 0, height: float | None = None) -> None:
        """Write a PNG of the visible page to `to`; with `height` (pixels), of that part of the whole page from `top`
        on.
        """
        options: dict[str, Any] = {"format": "png"}
        if height is not None:
            width = await self.js("innerWidth")
            options |= {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": top, "width": width, "height": height, "scale": 1},
            }
        to.write_bytes(
            base64.b64decode((await self.call("Page.captureScreenshot", **options))["data"])
        )

    async def _next(self) -> dict[str, Any]:
        return dict(json.loads((await self._socket.receive()).data))


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """Start Chromium with one tab for the `with` block, and close it at the end."""
    program = chromium()
    if program is None:
        raise RuntimeError("Chromium is not installed")
    profile = tempfile.mkdtemp(prefix="cs-chromium-")
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "DevTools listening" in line)
        port = line.split()[-1].split(":")[2].split("/")[0]
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(await _tab(port), max_msg_size=0) as socket,
        ):
            yield Page(socket)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _tab(port: str) -> str:
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            for tab in json.load(answer):
                if tab["type"] == "page":
                    return str(tab["webSocketDebuggerUrl"])
        await asyncio.sleep(0.05)


SIZES = 50, 10_000, 100_000
SETTINGS = ("learning_rate", "temperature")


def search_page(trials: int, steps: int = 12) -> str:
    """HTML report of a made-up search: two settings, two arms, a learning curve for each trial, one trial in ten
    pruned.
    """
    rng = np.random.default_rng(0)
    number = np.arange(trials)
    frame = pd.DataFrame(
        {
            "phase": "search",
            "learning_rate": 10 ** rng.uniform(-3, -1, trials),
            "temperature": rng.uniform(0.05, 1, trials),
            "trial_id": [f"{i:08x}" for i in number],
            "arm": np.where(number % 2, "a", "b"),
            "fold": 0,
            "seed": number,
            "status": np.where(number % 10 == 3, "pruned", "done"),
            "seconds": 2.0,
            "gpu_memory_gib": 1.5,
            "error": None,
        }
    )
    frame["f1"] = 0.8 - 0.1 * (frame["temperature"] - 0.3) ** 2 + rng.normal(0, 0.01, trials)
    curves = pd.DataFrame(
        {
            "trial_id": frame["trial_id"].repeat(steps),
            "step": np.tile(np.arange(1, steps + 1), trials),
        }
    )
    curves["f1"] = frame["f1"].repeat(steps) * (1 - np.exp(-curves["step"].to_numpy() / 3))
    rule = DecisionRule(Design(folds=None), "max", 0.05, "overall", None, None)
    few = frame.head(40)  # are in the table
    table = build_table(few, rule=rule, links=None, rows=["arm"], columns=[], axes=[], metric="f1")
    document = StudyDocument(name="made-up", metric="f1", arms=("a", "b"), axes=())
    return html_report(
        ReportData(frame=few, document=document, table=table, curves=curves, trials_of_sweep=frame)
    )


ACTIONS = {
    "filter": "const f = document.querySelector('.trials input'); f.value = 'pruned'; "
    "f.dispatchEvent(new Event('input'))",
    "sort": "document.querySelector('.trials th:nth-child(8)').click()",
    "parallel coordinates": "const k = document.querySelector('select[name=kind]'); k.value = 'parallel'; "
    "k.dispatchEvent(new Event('change'))",
    "curves": "const k = document.querySelector('select[name=kind]'); k.value = 'curves'; "
    "k.dispatchEvent(new Event('change'))",
}


TURNS = 3


async def waits(page_file: Path) -> list[tuple[float, float, float]]:
    """Load a report and use its explorer.

    One row for loading and one for each action, in milliseconds: to the first frame, to the second, and of processor.
    """
    async with browser() as page:
        await page.resize(*LAPTOP)
        await page.call("Performance.enable", timeDomain="threadTicks")
        loaded = 1000 * await page.open(page_file.as_uri())
        await page.milliseconds("")
        taken = [(loaded, loaded, await page.processor_ms())]
        for code in ACTIONS.values():
            before = await page.processor_ms()
            taken.append((*await page.milliseconds(code), await page.processor_ms() - before))
    return taken


def main() -> None:
    """Write the figures with date and load to results/explorer.md."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    names = ["trials", "MB", "loaded", *ACTIONS]
    lines = [names, ["---:"] * len(names)]
    with tempfile.TemporaryDirectory(prefix="cs-explorer-") as folder:
        for size in SIZES:
            page_file = Path(folder, f"{size}.html")
            page_file.write_text(search_page(size))
            taken = np.median([asyncio.run(waits(page_file)) for _ in range(TURNS)], axis=0)
            cells = [
                f"{first:,.0f} / {second:,.0f} ({computed:,.0f})"
                for first, second, computed in taken
            ]
            lines.append([f"{size:,}", f"{page_file.stat().st_size / 1e6:.1f}", *cells])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    about = (
        f"{date.today()}, headless Chromium without a GPU, {os.cpu_count()} cores shared with others (load "
        f"{os.getloadavg()[0]:.0f}); `python -m benchmarks.browser`:\nmade-up searches of two settings with curves of "
        "12 steps. Milliseconds by the clock until the first frame after an\naction is painted, which has the table, / "
        "until the second, which has the plot of many trials too, and, in brackets,\nof the processor in the page's "
        f"main thread; medians of {TURNS} fresh browsers."
    )
    page = Path(__file__).with_name("results") / "explorer.md"
    page.write_text(f"# All trials of a report, in a browser\n\n{about}\n\n{table}\n")


if __name__ == "__main__":
    main()
