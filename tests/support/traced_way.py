"""The way of a command through the modules of contrasweep, traced: `python traced_way.py run STUDY ...`.

Of the main thread of the command, until Ray Tune first asks for a trial; what runs as a module is imported is left out.
At its end the process prints the modules as they are entered, and `modules entered M, returns R`. A return is the first
call of a function in a module that the way had left before.
"""

import os
import sys
import threading

import contrasweep

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(contrasweep.__file__))))
PRODUCT = tuple(
    f"{ROOT}/{folder}/" for folder in ("platform", "trainables", "search_spaces", "cluster")
)
FIRST_TRIAL = ("tune_engine.py", "suggest")
MAIN = threading.get_ident()

rooms = {}  # file of a code object -> module of the product, "" for any other
functions = set()
way = []  # the module of each function, in the order of first calls


def room(file):
    if file not in rooms:
        path = os.path.realpath(file)
        rooms[file] = path if path.startswith(PRODUCT) else ""
    return rooms[file]


def is_importing(frame):
    """Whether the call was made while a module of the product was being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and room(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def follow(frame, event, _):
    code = frame.f_code
    if event != "call" or threading.get_ident() != MAIN or not (here := room(code.co_filename)):
        return
    if (here, code.co_qualname) in functions or is_importing(frame):
        return
    if (os.path.basename(here), code.co_name) == FIRST_TRIAL:
        sys.setprofile(None)
        stays = [module for at, module in enumerate(way) if not at or way[at - 1] != module]
        print("", *(os.path.relpath(module, ROOT) for module in stays), sep="\n")
        print(
            f"\nmodules entered {len(set(stays))}, returns {len(stays) - len(set(stays))}",
            flush=True,
        )
        os._exit(0)
    functions.add((here, code.co_qualname))
    way.append(here)


if __name__ == "__main__":
    sys.setprofile(follow)
    from contrasweep.cli import program

    program()
