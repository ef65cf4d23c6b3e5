"""The image of docker/cli/Dockerfile, run as docs/operate/pipelines.md shows it: not root, with a read-only file system."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blocks import ROOT, console_examples, page
from command_line import ended
from found_broker import need
from shop import Shop
from topology_commands import SHOP

from rabbit_chx.testing import RunningBroker, skip_unless_ci
from rabbit_chx.testing.containers import docker

pytestmark = [pytest.mark.broker, pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]

PUBLIC_BASE = re.findall(r"^ARG BASE=(\S+)$", page("docker/cli/Dockerfile"), re.MULTILINE)[0]
OUR_BASE = "rabbit-chx-base:trixie"
BUILD, RUN = (command for command, _ in console_examples(page("docs/operate/pipelines.md")))
MODULUS_FILE = page("examples/kubernetes/topology.toml")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def base_image() -> str:
    """Return the base of the Dockerfile if it is here or can be pulled, else one that is made of Debian's packages."""
    for image in (PUBLIC_BASE, OUR_BASE):
        if docker("image", "ls", "--quiet", image).strip():
            return image
    if os.geteuid() == 0 and shutil.which("mmdebstrap"):
        script = ROOT / "tests" / "support" / "python_base_image.sh"
        subprocess.run([script, OUR_BASE], check=True, timeout=400)
        return OUR_BASE
    done = ended("docker", "pull", "--quiet", PUBLIC_BASE, timeout_s=120)
    if done.returncode:
        skip_unless_ci(
            f"NOT TRIED: the image {PUBLIC_BASE} cannot be pulled, and there is no mmdebstrap: {done.stderr}"
        )
    return PUBLIC_BASE


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, built by the command of the page."""
    need("docker")
    base, tag = base_image(), f"rabbit-chx-test-{secrets.token_hex(4)}"
    stage = f"{tag}-build"
    words = BUILD.replace("--tag rabbit-chx ", f"--build-arg BASE={base} --tag {tag} ")
    try:
        for command in (words.replace(f"--tag {tag}", f"--target build --tag {stage}"), words):
            done = ended("bash", "-c", command, cwd=ROOT, timeout_s=400)
            assert done.returncode == 0, done.stdout + done.stderr
        yield tag
    finally:
        ended("docker", "rmi", tag, stage)


@pytest.fixture
def run(image: str, tmp_path: Path) -> Run:
    """Runs the command of the page with other arguments for the program, in a folder with its topology file."""
    command, program = RUN.split(" rabbit-chx ")
    assert program == "check topology.toml"
    (tmp_path / "topology.toml").write_text(MODULUS_FILE)
    tmp_path.chmod(0o755)  # the program is another user

    def run(broker: RunningBroker, *arguments: str, options: str = "") -> subprocess.CompletedProcess[str]:
        urls = {"AMQP_URL": broker.url, "RABBIT_CHX_MANAGEMENT_URL": str(broker.management_url)}
        words = f"{command} --network host {options} {image}"
        return ended("bash", "-c", f'{words} "$@"', "bash", *arguments, cwd=tmp_path, timeout_s=120, **urls)

    return run


def test_it_is_small_and_not_root(image: str) -> None:
    (found,) = json.loads(docker("image", "inspect", image))
    assert found["Size"] < 150_000_000
    assert found["Config"]["User"] == "65532:65532"
    probe = "import shutil, ssl; print(shutil.which('sh'), bool(ssl.create_default_context().get_ca_certs()))"
    said = docker("run", "--rm", "--network", "none", "--entrypoint", "python", image, "-c", probe)
    assert said.split() == ["None", "True"]


def test_apply_plan_and_check(run: Run, vhost: RunningBroker) -> None:
    missing = run(vhost, "check", "topology.toml")
    assert (missing.returncode, "missing" in missing.stdout) == (1, True), missing
    applied = run(vhost, "apply", "topology.toml", "--yes")
    assert (applied.returncode, "8 queues created" in applied.stdout) == (0, True), applied
    assert run(vhost, "plan", "topology.toml").returncode == 0
    checked = run(vhost, "check", "topology.toml")
    assert (checked.returncode, checked.stderr) == (0, ""), checked
    assert run(vhost, "check", "topology.toml", options="--env AMQP_URL=amqp://127.0.0.1:1").returncode == 69


def test_the_ring_is_read_by_a_program_that_was_added(
    run: Run, broker: RunningBroker, shop: Shop, tmp_path: Path
) -> None:
    """`docker exec` takes the place of `kubectl exec` of the page."""
    if broker.ring_via is None or broker.ring_via[0] != "docker":
        pytest.skip("this needs a broker in a container")
    (tmp_path / "topology.toml").write_text(SHOP.replace("weight = 10", "weight = 9"))
    socket = Path("/var/run/docker.sock")
    options = (
        f"--env RABBIT_CHX_RING_VIA='{shlex.join(broker.ring_via)}' --volume {socket}:{socket} "
        f"--group-add {socket.stat().st_gid} --volume {shutil.which('docker')}:/opt/rabbit-chx/bin/docker:ro"
    )
    checked = run(shop.broker, "check", "topology.toml", options=options)
    assert checked.returncode == 1, checked
    assert "checked   1 ring (16 buckets, read)" in checked.stdout
