"""Keys with nulls, in each container that has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

NULL_ARRAYS: dict[str, Any] = {
    "list": list,
    "object": lambda keys: np.array(keys, object),
    "NaN": lambda keys: np.array([float("nan") if key is None else key for key in keys], object),
    "pandas": lambda keys: pd.Series(keys, dtype="string"),
    "pandas NA": lambda keys: np.array([pd.NA if key is None else key for key in keys], object),
    "string": pa.array,
    "large_binary": lambda keys: pa.array([key and key.encode() for key in keys], pa.large_binary()),
    "string_view": lambda keys: pa.array(keys, pa.string_view()),
    "dictionary": lambda keys: pa.array(keys).dictionary_encode(),
    "null in the dictionary": lambda keys: pa.DictionaryArray.from_arrays(
        pa.array([2 if key is None else n % 2 for n, key in enumerate(keys)]), pa.array(["a", "b", None])
    ),
    "chunked": lambda keys: pa.chunked_array([pa.array(keys[:2]), pa.array(keys[2:])]),
}
