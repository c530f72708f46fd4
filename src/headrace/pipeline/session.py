"""The name that `headrace.spark.session` had. It works until 0.3 and warns."""

import warnings

from headrace.spark.session import DELTA, KAFKA, spark_session

__all__ = ["DELTA", "KAFKA", "spark_session"]

warnings.warn(
    "headrace.pipeline.session is now headrace.spark.session. Import it from there before 0.3.",
    FutureWarning,
    stacklevel=2,
)
