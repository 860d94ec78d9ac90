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

# The sampler's thread has a team of OpenMP threads beside that of the main thread. With more
# threads than cores GNU OpenMP lets them sleep almost at once, which made sampling a third
# slower; with this policy they still spin a little.
os.environ.setdefault("OMP_WAIT_POLICY", "active")
