"""Pipelines: a YAML file, checked, and run on a Spark session with its progress, its stop and its errors.

Nothing here loads PySpark before a pipeline is started, so that a mistake in a file is reported at once.
"""

from headrace.pipeline.pipeline import Pipeline, load_pipeline
from headrace.pipeline.run import RunningPipeline

__all__ = ["Pipeline", "RunningPipeline", "load_pipeline"]
