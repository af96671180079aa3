"""The files that start clusters, each against its parser or schema, and the Slurm script run on this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from places import ROOT, environment_without

from contrasweep.cluster.inventory import (
    ACCELERATOR_LABEL,
    GPU_MODELS,
    ray_inventory,
    read_inventory,
)

FILES = ROOT / "cluster/files"
DOCS = ROOT / "docs/cluster"

# --------------------------------------------------------------------------- KubeRay: the fields that we use

QUANTITY = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti)?$"}
TEXT = {"type": "string"}
WHOLE = {"type": "integer", "minimum": 0}
FLAG = {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}


def record(required=(), **properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def records(required=(), **properties):
    return {"type": "array", "minItems": 1, "items": record(required, **properties)}


RESOURCES = {"type": "object", "additionalProperties": QUANTITY}
CONTAINER = records(
    ["name", "image", "resources"],
    name=TEXT,
    image=TEXT,
    envFrom=records(["secretRef"], secretRef=record(["name"], name=TEXT)),
    ports=records(["containerPort"], containerPort=WHOLE, name={"type": "string", "maxLength": 15}),
    resources=record(requests=RESOURCES, limits=RESOURCES),
    volumeMounts=records(["name", "mountPath"], name=TEXT, mountPath=TEXT),
)
VOLUMES = records(
    ["name"], name=TEXT, emptyDir=record(medium={"enum": ["", "Memory"]}, sizeLimit=QUANTITY)
)
TEMPLATE = record(["spec"], spec=record(["containers"], containers=CONTAINER, volumes=VOLUMES))
CLUSTER_SPEC = record(
    ["headGroupSpec"],
    rayVersion=TEXT,
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=record(
        version={"enum": ["v1", "v2"]},
        upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
        idleTimeoutSeconds=WHOLE,
    ),
    authOptions=record(mode={"enum": ["disabled", "token"]}),
    headGroupSpec=record(["template"], rayStartParams=TEXTS, template=TEMPLATE),
    workerGroupSpecs=records(
        ["groupName", "minReplicas", "maxReplicas", "template"],
        groupName=TEXT,
        replicas=WHOLE,
        minReplicas=WHOLE,
        maxReplicas=WHOLE,
        labels=TEXTS,
        rayStartParams=TEXTS,
        template=TEMPLATE,
    ),
)
JOB_SPEC = record(
    ["entrypoint", "rayClusterSpec"],
    entrypoint=TEXT,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"]},
    backoffLimit=WHOLE,
    activeDeadlineSeconds=WHOLE,
    shutdownAfterJobFinishes=FLAG,
    ttlSecondsAfterFinished=WHOLE,
    rayClusterSpec=CLUSTER_SPEC,
)


def manifest(kind, spec):
    return record(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "ray.io/v1"},
        kind={"const": kind},
        metadata=record(
            ["name"], name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
        ),
        spec=spec,
    )


MANIFESTS = {
    "raycluster.yaml": manifest("RayCluster", CLUSTER_SPEC),
    "rayjob.yaml": manifest("RayJob", JOB_SPEC),
}


def read(name):
    return yaml.safe_load((FILES / name).read_text())


def cluster_spec(name):
    spec = read(name)["spec"]
    return spec.get("rayClusterSpec", spec)


@pytest.mark.parametrize("name", MANIFESTS)
def test_kuberay_manifests_have_the_fields_that_kuberay_has(name):
    jsonschema.validate(read(name), MANIFESTS[name])


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_agree_with_themselves_and_with_the_packing(name):
    import ray

    spec = cluster_spec(name)
    assert spec["rayVersion"] == ray.__version__, "the client refuses a cluster of another version"
    containers = [spec["headGroupSpec"]["template"]["spec"]["containers"][0]]
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        container = group["template"]["spec"]["containers"][0]
        containers.append(container)
        kind = group["labels"][ACCELERATOR_LABEL]
        gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
        ray_node = {
            "Resources": {"CPU": 8.0, "memory": 2**34, "GPU": float(gpus)},
            "Labels": group["labels"],
        }
        gpu = ray_inventory([ray_node]).nodes[0].gpu
        assert kind in GPU_MODELS and gpu.type == kind and gpu.memory_gib >= 20
        volumes = {v["name"] for v in group["template"]["spec"]["volumes"]}
        assert {m["name"] for m in container["volumeMounts"]} <= volumes
    assert len({c["image"] for c in containers}) == 1
    assert all(
        c["resources"]["requests"] == c["resources"]["limits"] for c in containers
    )  # guaranteed: not evicted
    assert all(
        c["envFrom"][0]["secretRef"]["name"] == "contrasweep-credentials" for c in containers
    )


def test_the_job_runs_our_command_on_storage_that_every_node_reaches():
    entrypoint = read("rayjob.yaml")["spec"]["entrypoint"].split()
    assert entrypoint[:2] == ["contrasweep", "run"]
    assert entrypoint[entrypoint.index("--storage") + 1].startswith("s3://")
    assert entrypoint[entrypoint.index("--tracking") + 1].startswith("http")


# ------------------------------------------------------------------------------------------------- ray up


def test_ray_up_file_passes_rays_own_schema():
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(read("ray-up-aws.yaml"))
    validate_config(prepared)
    assert set(prepared["available_node_types"]) == {"head", "a10g", "h100"}
    broken = read("ray-up-aws.yaml") | {"max_worker": 3}
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepare_config(broken))


# -------------------------------------------------------------------------------------------------- Slurm


def test_slurm_script_without_a_study_says_how():
    done = subprocess.run(["bash", str(FILES / "slurm.sh")], capture_output=True, text=True)
    assert done.returncode == 2 and "usage: sbatch" in done.stderr


SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""


def slurm_script(folder, job, **commands):
    """Run the script with stand-ins for srun (runs the command here) and scontrol (names two hosts)."""
    names = "#!/bin/bash\nprintf '127.0.0.1\\n127.0.0.1\\n'\n"
    commands |= {"srun": SRUN, "scontrol": names, "hostname": "#!/bin/bash\necho 127.0.0.1\n"}
    for name, text in commands.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environment = environment_without("RAY_", "SLURM_") | {
        "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "here[1-2]",
        "SLURM_JOB_ID": str(job),
    }
    words = ["bash", str(FILES / "slurm.sh"), "a:STUDY", "--storage", "x"]
    return subprocess.run(words, env=environment, capture_output=True, text=True)


def test_slurm_script_ends_when_the_head_does(tmp_path):
    """As it does where another process has the port; this `ray` fails at once."""
    done = slurm_script(tmp_path, 12007, ray="#!/bin/bash\nexit 1\n")
    assert done.returncode == 1
    assert "the Ray head on 127.0.0.1 did not start on port 20007" in done.stderr


# --------------------------------------------------------------------------------------------------- docs


def test_the_inventory_in_the_docs_can_be_read(tmp_path):
    for page in DOCS.glob("*.md"):
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            if "nodes:" in block:
                (tmp_path / "cluster.yaml").write_text(block)
                assert read_inventory(tmp_path / "cluster.yaml").gpus == 24
                return
    pytest.fail("no page shows an inventory")
