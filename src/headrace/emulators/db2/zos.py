"""The catalog as Db2 for z/OS tells it: SYSIBM's tables of the same facts, under that platform's names of types."""

from __future__ import annotations

ZOS_VIEWS = ()
