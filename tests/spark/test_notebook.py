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


@pytest.mark.slow
def test_the_notebook_runs_and_shows_plots(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
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
    shown = {
        cell.source.strip().splitlines()[-1]: cell.outputs
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    plots = ("plot.shares(ring)", "plot.rows(dry)", "plot.rows(report)", "plot.movement(change)")
    for plot in plots:
        assert any("image/png" in output.get("data", {}) for output in shown[f"{plot}.figure"]), plot
    printed = {plot: "".join(output.get("text", "") for output in shown[f"{plot}.figure"]) for plot in plots}
    assert "nothing was sent: 20,000 rows" in printed["plot.rows(dry)"]
    assert "20,000" in printed["plot.rows(report)"]
    assert "1 queue created" in printed["plot.movement(change)"]
    (predicted,) = (output["data"]["text/html"] for output in shown["predicted"])
    assert predicted.count("True") == 5
