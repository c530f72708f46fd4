"""What a run reads and writes, told to OpenLineage by its own client: when it begins, while it runs, when it ends."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from headrace.changes.dataset import Dataset
from headrace.changes.table import TableSchema
from headrace.errors import OptionError
from headrace.observe.history import Reading
from headrace.versions import __version__

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunState

_LOG = logging.getLogger("headrace.observe")
_EVERY_SECONDS = 300.0
_CHECK_SECONDS = 30.0
_PRODUCER = f"urn:headrace:{__version__}"


@dataclass(frozen=True)
class Touched:
    """A dataset that a run reads or writes.

    Args:
        dataset: its name.
        schema: its columns; None where they are not known.
    """

    dataset: Dataset
    schema: TableSchema | None = None


@dataclass(frozen=True)
class Lineage:
    """What flows from where to where, as far as names are known.

    Args:
        inputs: what is read.
        outputs: what is written.
    """

    inputs: Sequence[Touched] = ()
    outputs: Sequence[Touched] = ()


def lineage_client() -> OpenLineageClient:
    """A client as the user set it up, by the variables `OPENLINEAGE_*` or an `openlineage.yml`.

    Raises:
        OptionError: the package is not installed.
    """
    try:
        from openlineage.client import OpenLineageClient
    except ModuleNotFoundError:
        raise OptionError(
            "Events for OpenLineage need the Python package openlineage-python, which is not installed.",
            remedy="Run pip install 'headrace[openlineage]', or remove observe.openlineage.",
        ) from None
    return OpenLineageClient()


class LineageEvents:
    """The events of one run: START with the first look, RUNNING when what flows has changed or some minutes went by,
    COMPLETE or FAIL at the end. An event that can't be sent is warned of, and disturbs nothing.

    Args:
        namespace: the job's.
        name: the job's: the pipeline's name.
        ask: gives what flows now.
        client: sends the events.
        once: whether the run ends by itself.
        hide: takes secrets out of a text.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        ask: Callable[[], Lineage],
        client: OpenLineageClient,
        *,
        once: bool = False,
        hide: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._namespace = namespace
        self._name = name
        self._ask = ask
        self._client = client
        self._once = once
        self._hide = hide
        self._clock = clock
        self._run = str(generate_new_uuid())
        self._sent: tuple[float, Lineage] | None = None
        self._asked = float("-inf")
        self._warned = False

    def observed(self, moment: Reading) -> None:
        from openlineage.client.event_v2 import RunState

        # To ask may be to ask the database.
        if self._sent is not None and self._clock() - self._asked < _CHECK_SECONDS:
            return
        lineage, self._asked = self._ask(), self._clock()
        if self._sent is None:
            self._send(RunState.START, lineage)
        elif lineage != self._sent[1] or self._clock() - self._sent[0] >= _EVERY_SECONDS:
            self._send(RunState.RUNNING, lineage)

    def ended(self, last: Reading) -> None:
        """Say that the run has ended, and why."""
        from openlineage.client.event_v2 import RunState
        from openlineage.client.facet_v2 import error_message_run

        error = next((trouble.sentence for trouble in last.progress.troubles if trouble.fatal), None)
        if self._sent is None:
            # Whoever gets the end has to know of the beginning.
            self._send(RunState.START, Lineage() if error is not None else self._ask())
        lineage = Lineage() if self._sent is None else self._sent[1]
        if error is None:
            self._send(RunState.COMPLETE, lineage)
        else:
            facet = error_message_run.ErrorMessageRunFacet(message=self._hide(error), programmingLanguage="python")
            self._send(RunState.FAIL, lineage, {"errorMessage": facet})

    def _send(self, state: RunState, lineage: Lineage, more: dict[str, Any] | None = None) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent
        from openlineage.client.facet_v2 import job_type_job

        kind = job_type_job.JobTypeJobFacet(
            processingType="BATCH" if self._once else "STREAMING", integration="HEADRACE", jobType="PIPELINE"
        )
        event = RunEvent(
            eventType=state,
            eventTime=dt.datetime.now(dt.UTC).isoformat(),
            run=Run(runId=self._run, facets={"processing_engine": _engine(), **(more or {})}),
            job=Job(namespace=self._namespace, name=self._name, facets={"jobType": kind}),
            producer=_PRODUCER,
            inputs=[InputDataset(**_named(one)) for one in lineage.inputs],
            outputs=[OutputDataset(**_named(output)) for output in lineage.outputs],
        )
        self._sent = (self._clock(), lineage)
        try:
            self._client.emit(event)
        except Exception as error:
            # Once: the next ones fail for the same reason.
            if not self._warned:
                _LOG.warning("An event for OpenLineage was not sent (%s): %s", type(error).__name__, error)
            self._warned = True


def _engine() -> Any:
    from openlineage.client.facet_v2 import processing_engine_run

    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        spark = "unknown"
    return processing_engine_run.ProcessingEngineRunFacet(
        version=spark, name="spark", openlineageAdapterVersion=__version__
    )


def _named(touched: Touched) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset

    facets = {}
    if touched.schema is not None:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=column.name, type=column.native_type or str(column.logical))
            for column in touched.schema.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    return {"namespace": touched.dataset.namespace, "name": touched.dataset.name, "facets": facets}
