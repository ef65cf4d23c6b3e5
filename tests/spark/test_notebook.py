"""The notebook of the examples, from top to bottom, by a kernel of its own."""

from __future__ import annotations

import os
import shlex
import warnings
from pathlib import Path

import pytest

from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.pyspark("4.0", "format('rabbitmq')")]

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


def test_the_notebook_runs(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter's own
        import nbformat
        from nbclient import NotebookClient

        monkeypatch.setenv("RABBIT_CHX_TEST_URL", broker.url)
        monkeypatch.setenv("RABBIT_CHX_TEST_MANAGEMENT_URL", broker.management_url or "")
        monkeypatch.setenv("RABBIT_CHX_TEST_RING_VIA", shlex.join(broker.ring_via or ()))
        root = str(NOTEBOOK.parents[1])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))))
        notebook = nbformat.read(NOTEBOOK, 4)
        NotebookClient(
            notebook, timeout=100, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
        ).execute()
    pages = {
        cell.source.strip().splitlines()[-1]: "".join(
            output.get("text", "") or output["data"].get("text/html", "") for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    assert "nothing was sent: 20,000 rows" in pages["print(dry_run(placed, options, ring))"]
    assert "20,000" in pages["print(report)"]
    assert "flights.f" in pages["print(plan(wanted, broker.topology()))"]
    assert pages["predicted"].count("True") == 5
