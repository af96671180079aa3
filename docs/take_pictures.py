"""`make pictures`: the pictures and notebooks of these pages, from real runs. Needs Chromium, pdflatex and pdftoppm.

The demo is run, then the tutorials of a grid and of a search as their pages say. What they leave is photographed. The
notebooks are executed in place.
"""

import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import nbformat
from PIL import Image, ImageOps

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests" / "support")]

from benchmarks.browser import PHONE, Page, browser  # noqa: E402
from docs.site import LOOK  # noqa: E402
from tests.support.drivers import ray_folder  # noqa: E402
from tests.test_tutorials import NOTEBOOKS, do, execute  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
LAPTOP = (1366, 900)
COLOURS = 128
PAPER = (
    r"\documentclass{article}\usepackage{booktabs}\pagestyle{empty}"
    r"\begin{document}\input{table}\end{document}"
)


def main(folder: Path) -> None:
    """Write all pictures: `folder` has what `make demo` leaves in demo/, and gets the tutorials."""
    tutorial = folder / "tutorial"
    shutil.rmtree(tutorial, ignore_errors=True)
    tutorial.mkdir(parents=True)
    with ray_folder() as ray:
        do("pictures.md", tutorial, ray, leave_out=("contrasweep ui",))
        do("search.md", tutorial, ray)
    words = ["report", "tuned", "--format", "html", "--output", "tuned.html"]
    subprocess.run(
        [sys.executable, "-m", "contrasweep", *words],
        cwd=tutorial,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for page in sorted(NOTEBOOKS.glob("*.ipynb")):
        shutil.rmtree(tutorial / "runs", ignore_errors=True)
        nbformat.write(execute(page.name, tutorial), page)
    pack(folder / "demo" / "runs")
    photograph(folder / "demo", tutorial)
    typeset(tutorial)


def pack(storage: Path) -> None:
    """Put what a report of the demo reads into the archive of the first look, in place of what was there."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(LOOK) as archive:
            archive.extract("mteb.csv", folder, filter="data")
        with tarfile.open(LOOK, "w:xz") as archive:
            archive.add(Path(folder, "mteb.csv"), "mteb.csv")
            demo = storage / "demo"
            for file in sorted(
                [
                    *demo.glob("*.*"),
                    *demo.glob("records/*/record.json"),
                    *demo.glob("trials/*/metrics.parquet"),
                ]
            ):
                archive.add(file, file.relative_to(storage), filter=without_owner)


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out whose file it was, and when."""
    return member.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)


def photograph(demo: Path, tutorial: Path) -> None:
    """Photograph the reports and MLflow's page, all with one browser."""

    async def all_of_them() -> None:
        async with browser() as page:
            await page.call("Emulation.setScrollbarsHidden", hidden=True)
            report = (demo / "report.html").resolve().as_uri()
            await seen(page, report, "report")
            await seen(page, report, "report-dark", dark=True)
            await seen(page, report, "report-phone", size=PHONE, dark=True)
            await section(page, report, "answer")
            await section(page, report, "curves", 590)
            await section(page, report, "figures", 860)
            first = (tutorial / "report.html").resolve().as_uri()
            await section(
                page,
                first,
                "table",
                to="folds",
                before="document.querySelector('#table td details').open = true",
            )
            search = (tutorial / "tuned.html").resolve().as_uri()
            await section(page, search, "search", 640)
            state = {
                "kind": "scatter",
                "x": "loss.temperature",
                "ranges": json.dumps({"f1_macro": [0.92, 1.0]}),
            }
            await section(page, f"{search}#trials?{urlencode(state)}", "trials", 760, to="explored")
            await with_mlflow(page, tutorial)

    asyncio.run(all_of_them())


async def seen(
    page: Page, address: str, name: str, size: tuple[int, int] = LAPTOP, dark: bool = False
) -> None:
    """Photograph what a window of this size shows."""
    await page.resize(*size)
    await page.dark(dark)
    await page.open(address)
    await settled(page)
    save(await taken(page), name)
    await page.dark(False)


async def section(
    page: Page, address: str, part: str, at_most: int = 900, to: str = "", before: str = ""
) -> None:
    """Photograph one section of a report, of `at_most` this height, after the script `before`."""
    await page.resize(*LAPTOP)
    await page.open("about:blank")  # else another state of the same page is no new page
    await page.open(address)
    await page.js(before)
    await settled(page)
    box = f"document.getElementById({json.dumps(part)}).getBoundingClientRect()"
    left, top, right, height = await page.js(
        f"(b => [b.left, b.top + scrollY, b.right, b.height])({box})"
    )
    picture = await taken(page, top, min(height, at_most))
    save(picture.crop((int(left), 0, int(right), picture.height)), to or part)


async def settled(page: Page) -> None:
    await page.js("new Promise(done => setTimeout(done, 500))")


async def taken(page: Page, top: float = 0, height: float | None = None) -> Image.Image:
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        await page.picture(Path(file.name), top, height)
        return Image.open(io.BytesIO(Path(file.name).read_bytes())).convert("RGB")


def save(picture: Image.Image, name: str) -> None:
    """With few colours: these are pages of text."""
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
        PICTURES / f"{name}.png", optimize=True
    )


async def with_mlflow(page: Page, folder: Path, port: int = 5077) -> None:
    """Photograph MLflow's page of the tutorial's study."""
    words = [sys.executable, "-m", "contrasweep", "ui", "--port", str(port), "--study", "first"]
    server = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        address = next(
            word for line in server.stdout or () for word in line.split() if word.startswith("http")
        )
        await page.resize(*LAPTOP)
        await page.open(address)
        while "simclr" not in await page.js("document.body.innerText"):
            await settled(page)
        await page.js("new Promise(done => setTimeout(done, 5000))")  # its chart comes last
        save((await taken(page)).crop((0, 0, 1010, 800)), "mlflow")
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def typeset(folder: Path) -> None:
    """Compile the tutorial's table, and photograph it as it stands on the page."""
    (folder / "paper.tex").write_text(PAPER)
    subprocess.run(["pdflatex", "-interaction=batchmode", "paper"], cwd=folder, check=True)
    subprocess.run(
        ["pdftoppm", "-r", "130", "-png", "-singlefile", "paper.pdf", "paper"],
        cwd=folder,
        check=True,
    )
    page = Image.open(folder / "paper.png").convert("L")
    left, top, right, bottom = ImageOps.invert(page).getbbox() or (0, 0, *page.size)
    save(page.crop((left - 20, top - 20, right + 20, bottom + 20)), "table")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
