"""What the identity of code costs: the digest of a package of 200 modules, in processor seconds.

    python benchmarks/code.py [--modules 200] [--lines 60]

The package is written for it: each module imports two others, numpy and json, and holds functions with docstrings and
comments. Beside the digest's time stand that of reading and parsing the same files and nothing else, and the time of
the same digest once more in the same process, which parses nothing.
"""

import argparse
import ast
import gc
import sys
import tempfile
import time
from pathlib import Path

from contrasweep.code import code_of

FUNCTION = '''
def step_{i}(batch, *, rate=0.{i}, width={i}):
    """One step over `batch`, which is a mapping of arrays.

    It is written as people write: a docstring of some lines, a comment, and a few statements."""
    total = 0.0
    for name, values in batch.items():  # each of them once
        if name.startswith("_") or not len(values):
            continue
        scaled = [value * rate + width for value in values]
        total += sum(scaled) / max(1, len(scaled))
    return {{"total": total, "rate": rate, "names": sorted(batch), "text": f"{{total:.3f}} of {{width}}"}}

'''


def write(folder: Path, modules: int, lines: int) -> int:
    """Write the package; how many lines it has."""
    package = folder / "written"
    package.mkdir()
    (package / "__init__.py").write_text("")
    total = 0
    for i in range(modules):
        head = [f'"""Module {i}."""', "import json", "import numpy as np"]
        head += [f"from written import m{j}" for j in (i + 1, 2 * i + 1) if j < modules]
        text = "\n".join(head) + "\n"
        k = 0
        while text.count("\n") < lines:
            text, k = text + FUNCTION.format(i=k), k + 1
        (package / f"m{i}.py").write_text(text)
        total += text.count("\n")
    return total


def seconds(action: object, repeats: int = 5) -> float:
    """Least processor time of some calls."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        action()  # type: ignore[operator]
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, default=200)
    parser.add_argument("--lines", type=int, default=60)
    options = parser.parse_args()
    from contrasweep.code import normalised

    with tempfile.TemporaryDirectory() as folder:
        lines = write(Path(folder), options.modules, options.lines)
        sys.path.insert(0, folder)
        files = sorted(Path(folder).rglob("*.py"))

        def parse() -> None:
            gc.disable()
            for file in files:
                ast.parse(file.read_bytes())
            gc.enable()

        def fresh() -> None:
            normalised._meaning.cache_clear()
            assert len(code_of("written.m0:train").version.modules) == options.modules + 1

        code_of("written.m0:train")
        parsing, digesting = seconds(parse), seconds(fresh)
        again = seconds(lambda: code_of("written.m0:train"))
        print(f"{options.modules} modules, {lines} lines")
        print(f"reading and parsing   {parsing:.3f} s")
        print(f"digest                {digesting:.3f} s ({digesting / parsing:.2f} of parsing)")
        print(f"digest again          {again:.3f} s")


if __name__ == "__main__":
    main()
