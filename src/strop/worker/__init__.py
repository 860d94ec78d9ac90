"""The training side: the processes in which models live.

`python -m strop.worker train RUN` trains the run in a folder until it is done, paused or
failed, and says so in its status.json. Whoever starts it (the command line, a server, a
cluster) follows the files of the run folder and needs no other channel.
"""
