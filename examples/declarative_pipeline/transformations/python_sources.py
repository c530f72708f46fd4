"""Lets a run that reads a Python source end well; needed with PySpark 4.2.1 and 4.3.0.

There the server ends such a run with counters of its Python profiler, and the client in `spark-pipelines` takes them
for an error (UNKNOWN_RESPONSE, after "Run is COMPLETED"). Every Python source is met by it, not only this one. A run
that fails still fails: it ends with its own error and without counters.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkValueError
from pyspark.sql.connect.client import SparkConnectClient

responses = SparkConnectClient.execute_command_as_iterator


def responses_without_counters(self: SparkConnectClient, *args: Any, **kwargs: Any) -> Iterator[dict[str, Any]]:
    try:
        yield from responses(self, *args, **kwargs)
    except PySparkValueError as error:
        if "__python_accumulator__" not in str(error):
            raise


SparkConnectClient.execute_command_as_iterator = responses_without_counters
