"""What Spark finds by itself: `spark.readStream.format("headrace").option("connector", "sqlserver")`.

Spark imports every package whose name begins with `pyspark_` when a Python data source is first asked for, and
registers its `DefaultSource`. So this works without `headrace.register(spark)`; it stays import-light for everybody who
does not use it.
"""

from headrace.sources.reader import DefaultSource as DefaultSource
