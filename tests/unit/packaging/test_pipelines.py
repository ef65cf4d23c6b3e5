"""The Kubernetes manifests, the GitHub Action and the pre-commit hook, without a broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from installed_wheels import installed_wheels

from rabbit_chx import Topology
from rabbit_chx.cli.app import app
from rabbit_chx.ui.app import METRICS

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = ROOT / "examples" / "kubernetes"
PAGE = (ROOT / "docs" / "operate" / "pipelines.md").read_text()
MANIFESTS = {
    f"{path.name}/{document['kind']}": document
    for path in (*sorted(KUBERNETES.glob("*.yaml")), ROOT / "monitoring" / "kubernetes.yaml")
    for document in yaml.safe_load_all(path.read_text())
}
MONITORING_PAGE = (ROOT / "docs" / "operate" / "monitoring.md").read_text()
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
#: What pip builds the package from, and the hook.
SOURCES = (
    ".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE", "docs", "monitoring",
    "rabbit_chx", "spark_connector", "pyspark_rabbitmq",
)  # fmt: skip
#: What `restricted` of the Pod Security Standards demands, and more.
POD = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=list(MANIFESTS))
def test_kubernetes_accepts_the_manifest(manifest: dict[str, Any]) -> None:
    for version in ("1.30", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(manifest, version, strict=True)


def jobs() -> dict[str, dict[str, Any]]:
    """Return the specification of each Job, by its command."""
    specs = [MANIFESTS["check.yaml/CronJob"]["spec"]["jobTemplate"], MANIFESTS["apply.yaml/Job"]]
    return {job["spec"]["template"]["spec"]["containers"][0]["args"][0]: job["spec"] for job in specs}


def pods() -> dict[str, dict[str, Any]]:
    """Return the specification of each pod, by its command."""
    specs = [*jobs().values(), MANIFESTS["kubernetes.yaml/Deployment"]["spec"]]
    found = [spec["template"]["spec"] for spec in specs]
    return {pod["containers"][0]["args"][0]: pod for pod in found}


@pytest.mark.parametrize("pod", pods().values(), ids=list(pods()))
def test_a_pod_has_the_least_privileges(pod: dict[str, Any]) -> None:
    assert {name: pod.get(name) for name in POD} == POD
    (container,) = pod["containers"]
    assert container["securityContext"] == CONTAINER
    assert container["resources"]["limits"]["memory"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "env" not in container, "the URLs contain passwords"
    assert not re.search(r"amqps?:|https?:", " ".join(container["args"]))


@pytest.mark.parametrize("job", jobs().values(), ids=list(jobs()))
def test_a_job_ends_and_is_not_tried_again(job: dict[str, Any]) -> None:
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["activeDeadlineSeconds"] <= 600
    assert job["backoffLimit"] == 0


def test_prometheus_finds_the_metrics_of_the_deployment() -> None:
    deployment, service = MANIFESTS["kubernetes.yaml/Deployment"], MANIFESTS["kubernetes.yaml/Service"]
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    scrape = {"scrape": "true", "port": str(port["containerPort"]), "path": METRICS}
    assert template["metadata"]["annotations"] == {
        f"prometheus.io/{name}": text for name, text in scrape.items()
    }
    assert (
        service["spec"]["selector"]
        == template["metadata"]["labels"]
        == deployment["spec"]["selector"]["matchLabels"]
    )
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert "--open-metrics" in container["args"]
    assert "RABBIT_CHX_UI_TOKEN" in MONITORING_PAGE


def test_the_commands_are_those_of_the_program_and_the_names_those_of_the_page() -> None:
    for pod in pods().values():
        (container,) = pod["containers"]
        name, *rest = container["args"]
        shown = MONITORING_PAGE if name == "ui" else PAGE
        program = app.make_context("rabbit-chx", [], resilient_parsing=True)
        command: Any = app.get_command(program, name)
        # Without its parent the command would keep a help option without -h.
        context = command.make_context(name, [], parent=program, resilient_parsing=True)
        command.make_parser(context).parse_args([*rest])
        (secret,) = container["envFrom"]
        assert f"secret generic {secret['secretRef']['name']} " in shown
        topology = pod["volumes"][0]
        assert f"configmap {topology['configMap']['name']} --from-file=topology.toml" in shown
        assert f"{container['volumeMounts'][0]['mountPath']}/topology.toml" in rest
    Topology.from_toml((KUBERNETES / "topology.toml").read_text())


def test_the_role_permits_one_pod_only() -> None:
    for rule in MANIFESTS["ring-via.yaml/Role"]["rules"]:
        assert rule["resourceNames"] == ["rabbitmq-0"]
        assert "*" not in rule["verbs"] + rule["resources"]


def test_the_page_uses_the_inputs_of_the_action_and_the_hook() -> None:
    *workflows, config = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    required = {name for name, given in ACTION["inputs"].items() if given.get("required")}
    assert [list(workflow["jobs"]) for workflow in workflows] == [["plan"], ["apply"]]
    for workflow in workflows:
        (job,) = workflow["jobs"].values()
        (step,) = (step for step in job["steps"] if "rabbit_chx" in step["uses"])
        assert required <= step["with"].keys() <= ACTION["inputs"].keys()
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"]] == [used["id"] for used in config["repos"][0]["hooks"]]


@pytest.mark.slow
def test_pre_commit_runs_the_hook_of_the_page(tmp_path: Path) -> None:
    repository, wheels = tmp_path / "rabbit_chx", tmp_path / "wheels"
    wheels.mkdir()  # pip installs the hook from them, without a network
    installed_wheels(
        wheels,
        "numpy",
        "pamqp",
        "pika",
        "click",
        "jinja2",
        "markupsafe",
        "tomlkit",
        "hatchling",
        "hatch-fancy-pypi-readme",
    )
    environment = {
        **{
            name: text for name, text in os.environ.items() if not name.startswith(("GIT_", "PIP_", "PYTHON"))
        },
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PRE_COMMIT_HOME": str(tmp_path / "cache"),
        "AMQP_URL": "amqp://nowhere.invalid",
    }

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150, check=False
        )

    repository.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, repository / name)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", repository)
    run(*git, "init", "--quiet")
    run(*git, "add", ".")
    run(*git, "commit", "--quiet", "--message", "hook")
    *_, config = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    commit = run(*git, "rev-parse", "HEAD").stdout.strip()
    config = config.replace("https://github.com/OWNER/rabbit_chx", str(repository)).replace("COMMIT", commit)
    (tmp_path / ".pre-commit-config.yaml").write_text(config)
    (tmp_path / "topology.toml").write_text((KUBERNETES / "topology.toml").read_text())
    (tmp_path / "topology-2.toml").write_text('[[queues]]\nname = "jobs"\ntype = "quroum"\n')
    (tmp_path / "other.toml").write_text("not a topology")
    run("git", "init", "--quiet")

    hook = (sys.executable, "-m", "pre_commit", "run", "--files")
    refused = run(*hook, "topology.toml", "topology-2.toml", "other.toml")
    assert (refused.returncode, "topology-2.toml has a mistake:" in refused.stdout) == (1, True), refused
    assert "other.toml" not in refused.stdout
    passed = run(*hook, "topology.toml", "other.toml")
    assert (passed.returncode, "Passed" in passed.stdout) == (0, True), passed

    (tmp_path / "topology.toml").write_text('[[queues]]\nname = "jobs.${env}"\n')
    undefined = run(*hook, "topology.toml")
    assert (undefined.returncode, "the variable env is not set" in undefined.stdout) == (1, True), undefined
    (words,) = re.findall(r"`(args: .*?)`", PAGE)
    (tmp_path / ".pre-commit-config.yaml").write_text(f"{config.rstrip()}\n        {words}\n")
    run("git", "add", ".pre-commit-config.yaml")
    with_values = run(*hook, "topology.toml")
    assert (with_values.returncode, "Passed" in with_values.stdout) == (0, True), with_values
