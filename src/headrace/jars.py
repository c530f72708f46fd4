"""The name that `headrace.spark.jars` had. It works until 0.3 and warns."""

import warnings

from headrace.spark.jars import AVRO, DELTA, ICEBERG, KAFKA, SQLITE, main, maven_jars

__all__ = ["AVRO", "DELTA", "ICEBERG", "KAFKA", "SQLITE", "main", "maven_jars"]

warnings.warn("headrace.jars is now headrace.spark.jars. Import it from there before 0.3.", FutureWarning, stacklevel=2)

if __name__ == "__main__":
    main()
