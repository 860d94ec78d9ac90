"""One way to the data: what routes and pages ask for, safe for the event loop.

One module for each noun. Public coroutines run blocking work in the threads of the event loop, whose
number is limited. They return the objects that the API answers with.
"""
