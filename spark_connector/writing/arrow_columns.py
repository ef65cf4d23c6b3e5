"""Columns of Arrow batches, whole columns at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_binary(column: Any) -> Any:  # noqa: ANN401  # Arrow has no types
    """Return a text column as its bytes, without a copy; another column stays as it is.

    A string of Spark may contain bytes that are not valid UTF-8, so nothing is decoded.
    """
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column.view(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def byte_lengths(column: Any) -> NDArray[np.int64]:  # noqa: ANN401
    """Return the number of bytes of each text or binary value; 0 for null."""
    lengths: Any = pc.binary_length(column)
    sizes: NDArray[np.int64] = (
        lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    )
    return sizes


def as_flags(column: Any) -> NDArray[np.bool_]:  # noqa: ANN401
    """Return a column of booleans as a NumPy array; null is False."""
    flags: NDArray[np.bool_] = column.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def whole_seconds(column: Any) -> Any:  # noqa: ANN401
    """Return timestamps in microseconds as whole seconds since 1970, rounded down; null stays null.

    Arrow's own rounding goes by local time: it fails at an hour that occurs twice, and at a time zone that
    only Spark knows.
    """
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(micros // 1_000_000, pa.int64(), mask=column.is_null().to_numpy(zero_copy_only=False))
