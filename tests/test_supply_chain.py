"""What is installed and what is shipped: versions with hashes and without addresses, and nothing that is not named."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", (ROOT / name).read_text(), flags=re.MULTILINE))


def test_every_requirement_has_the_constrained_version_and_hashes():
    text = (ROOT / "requirements.txt").read_text()
    required, constrained = pins("requirements.txt"), pins("constraints.txt")
    assert len(required) > 100
    assert {name: v for name, v in required.items() if constrained.get(name, v) != v} == {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[A-Za-z0-9._-]+(\[[^\]]*\])?==\S+", entry) and "--hash=sha256:" in entry, entry[:100]
    assert "://" not in text and "--index-url" not in text


def test_every_direct_dependency_is_among_the_requirements():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["all"]]
    names = {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in declared}
    assert names <= {name.lower() for name in pins("requirements.txt")}


def test_no_pre_release_is_installed_but_those_of_opentelemetry():
    """Which has never released some of its packages, and MLflow needs them."""
    from packaging.version import Version

    early = {name for name, version in pins("constraints.txt").items() if Version(version).is_prerelease}
    assert {name for name in early if not name.startswith("opentelemetry-")} == set()


def test_an_image_holds_what_is_named_and_nothing_else():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    shipped = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert {"platform", "cluster", "trainables", "search_spaces", "pyproject.toml", "requirements.txt"} <= shipped
    assert not shipped & {".git", ".venv", "tests", "contrasweep-runs", "."}
    assert all((ROOT / name).exists() for name in shipped)
    assert "--require-hashes" in (ROOT / "cluster/files/Dockerfile").read_text()
