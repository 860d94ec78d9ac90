"""The training side: the processes in which models live.

`python -m strop.worker train RUN` trains the run in a folder until it is done, paused or
failed, and says so in its status.json. Whoever starts it (the command line, a server, a
cluster) follows the files of the run folder and needs no other channel.
"""

import os

# Threads of GNU OpenMP spin while they wait, and two processes that do so on the same cores
# slow each other down tenfold. A spin of this length costs nothing on an idle machine; a
# shorter one slows training, a longer one the neighbours. Read once, when torch loads it; a
# value that the user has set stays.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
