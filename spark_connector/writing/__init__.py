"""A write: checked and planned on the driver, and executed by tasks."""
