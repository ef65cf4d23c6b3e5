"""Reading streams with Spark: the start and end of a read, its ranges, and the tasks that read the rows."""
