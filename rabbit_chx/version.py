"""The version of this package. It stands here only, so that a copy without metadata knows it, too: a clone, or an archive on the path."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rabbit_chx.errors import MissingExtraError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__version__ = "0.4.0"


# -- How this copy was installed: the command that adds an extra to it


#: Whether pip finds the package by its name on an index.
IS_ON_INDEX = False
_NAME = "rabbit-chx"


def missing_extra(what: str, package: str | None, extra: str) -> MissingExtraError:
    """Return the error of something whose optional dependency is not installed; the message has the command that installs it.

    Args:
        what: what needs the package.
        package: the module that could not be imported.
        extra: the extra of this package that installs it.
    """
    return MissingExtraError(f"{what} needs {package}, which is not installed: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return a command that installs an extra beside this copy.

    It names the clone, the wheel or the URL that this copy was installed from, which pip records in `direct_url.json` (PEP 610). If that
    is not recorded, or not there any more, the command names the packages of the extra.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and rarely needed

    try:
        installed = distribution(_NAME)
    except PackageNotFoundError:  # a clone in PYTHONPATH, an archive of Spark
        return f"install the packages of the extra '{extra}' in pyproject.toml"
    options = _origin(installed, extra) or _packages(installed, extra)
    return shlex.join(["pip", "install", *options])


def _origin(installed: Distribution, extra: str) -> list[str]:
    """Return the arguments of pip that name where a copy was installed from; none if that is not known or gone."""
    text = installed.read_text("direct_url.json")
    if text is None:
        return [f"{_NAME}[{extra}]"] if IS_ON_INDEX else []
    record = json.loads(text)
    url = str(record["url"])
    if urlsplit(url).scheme == "file" and "vcs_info" not in record:
        path = unquote(urlsplit(url).path)
        editable = ["-e"] if record.get("dir_info", {}).get("editable") else []
        return [*editable, f"{path}[{extra}]"] if Path(path).exists() else []
    if vcs := record.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return [f"{_NAME}[{extra}] @ {url}"]


def _packages(installed: Distribution, extra: str) -> list[str]:
    """Return the requirements of an extra, as the metadata of a copy names them."""
    marker = re.compile(rf"""^(.*?)\s*;\s*extra == ['"]{re.escape(extra)}['"]$""")
    return [found[1] for line in installed.requires or () if (found := marker.match(line))]
