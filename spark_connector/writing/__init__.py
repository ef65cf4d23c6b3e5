"""A write: it is checked and planned on the driver, and done by tasks."""
