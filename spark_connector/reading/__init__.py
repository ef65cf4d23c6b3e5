"""Reading streams with Spark: where a reading begins and ends, its ranges, and the tasks that give rows."""
