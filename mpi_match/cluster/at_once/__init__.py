"""Short batches, done at once: the main thread of a rank reads, matches and writes, and wakes no other thread.

    master   `messages`  made ahead ─► sent as soon as an answer is there (`exchange`) ─► answers written now and then
    worker   `matcher`   matches a batch from the memory of its message, and answers it before it does anything else

`cluster.execution` chooses it at set-up, by the number of events of a batch.
"""
