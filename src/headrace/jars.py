"""The name that `headrace.spark.jars` had. It works until 0.3 and warns."""

from headrace.spark.jars import AVRO, DELTA, ICEBERG, KAFKA, SQLITE, main, maven_jars
from headrace.versions import warn_of_change

__all__ = ["AVRO", "DELTA", "ICEBERG", "KAFKA", "SQLITE", "main", "maven_jars"]

warn_of_change("headrace.jars is now headrace.spark.jars. Import it from there before 0.3.")

if __name__ == "__main__":
    main()
