"""A write: checked and planned on the driver, done by tasks."""
