"""Plans count few seeds."""

from few_seeds import plans_count_few_seeds, seed_tables_are_forgotten  # noqa: F401  # pytest finds fixtures by their names
