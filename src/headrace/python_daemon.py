"""The name that `headrace.spark.daemon` had, for settings that say `spark.python.daemon.module=headrace.python_daemon`.

It works until 0.3 and warns.
"""

import runpy
import sys

if __name__ == "__main__":
    sys.stderr.write(
        "headrace.python_daemon is now headrace.spark.daemon. Change spark.python.daemon.module before 0.3.\n"
    )
    runpy.run_module("headrace.spark.daemon", run_name="__main__", alter_sys=True)
