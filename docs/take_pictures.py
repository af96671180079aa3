"""`make pictures`: the pictures of these pages, from real runs. Needs Chromium, pdflatex and pdftoppm.

The demo is run, then the first tutorial as its page says. What they leave is photographed.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image, ImageOps

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "tests" / "support")]

from drivers import ray_folder  # noqa: E402 of the tests
from tests.test_tutorials import do  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
COLOURS = 64
PAPER = (
    r"\documentclass{article}\usepackage{booktabs,siunitx}\pagestyle{empty}\begin{document}\input{table}\end{document}"
)


def main(demo: Path, folder: Path) -> None:
    """Write all pictures: `demo` is the folder that `make demo` leaves, `folder` gets the tutorial."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with ray_folder() as ray:
        do("pictures.md", folder, ray, leave_out=("contrasweep ui",))
    report = f"file://{(demo / 'report.html').resolve()}"
    photograph(report, "report")
    photograph(report, "report-dark", "--blink-settings=preferredColorScheme=0")
    photograph(report, "answer", crop=(130, 290, 1230, 545))
    with_mlflow(folder)
    (folder / "paper.tex").write_text(PAPER)
    subprocess.run(["pdflatex", "-interaction=batchmode", "paper"], cwd=folder, check=True)
    subprocess.run(["pdftoppm", "-r", "130", "-png", "-singlefile", "paper.pdf", "paper"], cwd=folder, check=True)
    page = Image.open(folder / "paper.png").convert("L")
    left, top, right, bottom = ImageOps.invert(page).getbbox() or (0, 0, *page.size)
    save(page.crop((left - 20, top - 20, right + 20, bottom + 20)), "table")


def photograph(
    address: str,
    name: str,
    *options: str,
    size: str = "1366,900",
    crop: tuple[int, int, int, int] | None = None,
    wait_ms: int = 0,
) -> None:
    """Take a picture of a page as Chromium shows it in a window of this size."""
    file = PICTURES / f"{name}.png"
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
    waiting = [f"--virtual-time-budget={wait_ms}"] if wait_ms else []
    subprocess.run(
        [*words, *waiting, *options, f"--screenshot={file}", address], check=True, capture_output=True, timeout=180
    )
    picture = Image.open(file).convert("RGB")
    save(picture.crop(crop) if crop else picture, name)


def save(picture: Image.Image, name: str) -> None:
    """With few colours: these are pages of text."""
    picture.quantize(COLOURS).save(PICTURES / f"{name}.png", optimize=True)


def with_mlflow(folder: Path, port: int = 5077) -> None:
    """Photograph MLflow's page of the tutorial's study."""
    words = [sys.executable, "-m", "contrasweep", "ui", "--port", str(port), "--study", "first"]
    server = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        address = next(word for line in server.stdout or () for word in line.split() if word.startswith("http"))
        time.sleep(5.0)  # the first page is slow
        photograph(address, "mlflow", crop=(0, 0, 1010, 800), wait_ms=30_000)
    finally:
        os.killpg(server.pid, 15)
        server.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
