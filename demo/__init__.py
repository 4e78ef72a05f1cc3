"""A departures board on real data: 336,776 flights of 2013 go through the broker, its subscribers and Spark, and are counted at the end.

`python -m demo` plays six steps (play.py); each actor is a process of its own:

    stompbox serve          the broker, durable, on a free port
    demo.publisher          every flight to /topic/flights.<carrier>, confirmed
    demo.board              wildcard subscriber on /topic/flights.#
    demo.control_room       durable subscriber, away for half of the stream
    demo.worker (two)       compete on /queue/late; one is killed
    demo.archive            Spark Structured Streaming into a Parquet table; killed and restarted
    demo.delays             Spark batch job: delays and counts, sent back as messages
    demo.reader             reads them from /queue/report, without async

From bottom to top: flights, lines, processes, display (what the others use); the actors; audit, charts, page; play.
"""
