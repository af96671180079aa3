"""Headless Chromium over its debugging protocol: open a page, run script in it, take pictures of it."""

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0")
LAPTOP, PHONE = (1366, 768), (390, 844)


def chromium() -> str | None:
    """Where Chromium is; None where it is not installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._count, self._events = socket, 0, list[dict[str, Any]]()

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
        """Go to `address`; seconds until everything in it is loaded."""
        await self.call("Page.enable")
        self._events.clear()
        began = time.perf_counter()
        await self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(await self._next())
        return time.perf_counter() - began

    async def js(self, code: str) -> Any:
        """The value of `code`, awaited if it is a promise."""
        done = await self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"])
        return done["result"].get("value")

    async def milliseconds(self, code: str) -> float:
        """From running `code` to the second frame after it, when its effect is painted."""
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        return float(
            await self.js(
                f"(async () => {{await {frames}; const t = performance.now(); {code}; await {frames}; return "
                f"performance.now() - t}})()"
            )
        )

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def dark(self, on: bool = True) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def picture(self, to: Path, top: float = 0, height: float | None = None) -> None:
        """A PNG of what is seen; with `height`, of that much of the whole page from `top`."""
        options: dict[str, Any] = {"format": "png"}
        if height is not None:
            width = await self.js("innerWidth")
            options |= {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": top, "width": width, "height": height, "scale": 1},
            }
        to.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot", **options))["data"]))

    async def _next(self) -> dict[str, Any]:
        return dict(json.loads((await self._socket.receive()).data))


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A fresh Chromium with one tab; it ends with the `with`."""
    program = chromium()
    if program is None:
        raise RuntimeError("Chromium is not installed")
    profile = tempfile.mkdtemp(prefix="cs-chromium-")
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "DevTools listening" in line)
        port = line.split()[-1].split(":")[2].split("/")[0]
        async with aiohttp.ClientSession() as session, session.ws_connect(await _tab(port), max_msg_size=0) as socket:
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
