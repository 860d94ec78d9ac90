"""The training side: processes that load models.

`python -m strop.worker train RUN` trains the run in a folder until it has finished, paused or failed, and records
this in status.json. The process that starts it (the command line, a server, a cluster) follows the files of the run
folder and needs no other channel.
"""

import os

# Threads of GNU OpenMP spin while they wait, and two processes that do so on the same cores
# slow each other down tenfold. A spin of this length costs nothing on an idle machine; a
# shorter one slows training, a longer one the neighbours. Read once, when torch loads it; a
# value that the user has set stays.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
