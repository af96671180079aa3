"""Local Rays for the tests of a process, one at a time: each takes seconds to start, so it stays until another kind is
needed."""

import os
import shutil
import tempfile

import pytest
import ray
from places import SUPPORT, module_path

KINDS = {
    "cpu": {"num_cpus": 1},
    "cpus": {"num_cpus": 2},
    "gpu": {
        "num_cpus": 4,
        "num_gpus": 1,
        "labels": {"ray.io/accelerator-type": "T4", "cost-per-hour": "3"},
    },
}
"""`cpu` starts one worker a study, which takes seconds, where two at a time would show nothing more. `gpu` is told of
one T4, for 3 an hour, and has none."""


class LocalRay:
    """`importable` is a folder from which its workers import, beside the tests' support."""

    def __init__(self, importable):
        self.importable = importable
        self.folder = ""
        self.kind = ""
        importable.mkdir(parents=True)

    def use(self, kind):
        """Connect to a Ray of this kind, started unless the last one was of it too."""
        if ray.is_initialized() and self.kind == kind:
            return
        self.close()
        from contrasweep.running.engine.tune_engine import TUNE_ENVIRONMENT

        os.environ.update(TUNE_ENVIRONMENT)  # Ray reads its part as it starts
        # short: Ray puts sockets below it
        self.kind = kind
        self.folder = tempfile.mkdtemp(prefix="cs-")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", module_path(SUPPORT, self.importable))
            for attempts_left in (2, 1, 0):
                try:
                    self._start(kind)
                    break
                except (
                    Exception
                ) as error:  # a plain one, where a busy machine took it over 30 s to start
                    ray.shutdown()
                    if not attempts_left or "timed out during startup" not in str(error):
                        raise

    def _start(self, kind):
        ray.init(
            "local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=80 * 2**20,
            _temp_dir=self.folder,
            **KINDS[kind],
        )

    def close(self):
        """Stop what runs."""
        ray.shutdown()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
