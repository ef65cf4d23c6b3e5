"""Keys in each container that can have them, and keys with nulls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

#: All of them can be sliced.
TEXT_ARRAYS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "object": lambda keys: np.array(keys, object),
    "string": lambda keys: pa.array(keys, pa.string()),
    "large_string": lambda keys: pa.array(keys, pa.large_string()),
    "string_view": lambda keys: pa.array(keys, pa.string_view()),
    "dictionary": lambda keys: pa.array(keys).dictionary_encode(),
    "chunked": lambda keys: pa.chunked_array(
        [pa.array(keys[:1], pa.string()), pa.array([], pa.string()), pa.array(keys[1:], pa.string())]
    ),
    "chunked dictionary": lambda keys: pa.chunked_array(
        [pa.array(keys[:1]).dictionary_encode(), pa.array(keys[1:]).dictionary_encode()]
    ),
}
#: They encode the text that they are given.
BYTES_ARRAYS: dict[str, Any] = {
    "bytes": lambda keys: [key.encode() for key in keys],
    "binary": lambda keys: pa.array([key.encode() for key in keys], pa.binary()),
    "large_binary": lambda keys: pa.array([key.encode() for key in keys], pa.large_binary()),
    "binary_view": lambda keys: pa.array([key.encode() for key in keys], pa.binary_view()),
}
KEY_ARRAYS: dict[str, Any] = {
    **TEXT_ARRAYS,
    **BYTES_ARRAYS,
    "mixed": lambda keys: [key if n % 2 else key.encode() for n, key in enumerate(keys)],
}
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
