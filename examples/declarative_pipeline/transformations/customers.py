"""The changes of one table as a streaming table."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import headrace

spark = SparkSession.active()
headrace.register(spark)

source = {
    "hostname": os.environ["SALES_HOST"],
    "database": os.environ.get("SALES_DATABASE", "sales"),
    "user": os.environ["SALES_USER"],
    "password": os.environ["SALES_PASSWORD"],
    "driver": os.environ.get("SALES_DRIVER", "mssql-python"),
    "table": "dbo.customers",
}
[table] = headrace.tables("sqlserver", **source)


@dp.table
def customer_changes() -> DataFrame:
    """Every change, typed; the snapshot's rows first."""
    changes = spark.readStream.format("sqlserver_cdc").options(**source).load()
    return headrace.typed(changes, table).select("op", "position", "event_time", "key_text", "before", "after")
