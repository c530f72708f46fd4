"""The name that `headrace.spark.session` had. It works until 0.3 and warns."""

from headrace.spark.session import DELTA, KAFKA, spark_session
from headrace.versions import warn_of_change

__all__ = ["DELTA", "KAFKA", "spark_session"]

warn_of_change("headrace.pipeline.session is now headrace.spark.session. Import it from there before 0.3.")
