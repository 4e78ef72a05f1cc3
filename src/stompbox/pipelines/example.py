"""What `stompbox pipeline init` writes: an example that runs as it is, with every kind of step and what can be changed."""

from __future__ import annotations

from typing import Final

EXAMPLE: Final = '''\
# A pipeline: messages to tables, tables to messages. docs/pipelines.md lists every key.
#   stompbox pipeline check FILE             is it right?
#   stompbox pipeline run FILE --dry-run     what would be read and written where; starts nothing
#   stompbox pipeline run FILE --once        everything that is there now, and each step once
#   stompbox pipeline run FILE               archives and transforms go on until Ctrl-C
# Paths are relative to this file.

url = "stomp://127.0.0.1:61613"        # or leave it out and set STOMPBOX_URL
# login = "lake"                       # the password: passcode, or STOMPBOX_PASSCODE
folder = "pipeline-state"              # checkpoints: keep it, it says how far each step has come

# [spark]
# cores = 2                            # 0: all
# nice = 10                            # how much Spark gives way to the broker and others here, 0 to 20
# settings = { "spark.driver.memory" = "2g" }

# --- destinations to a table, each message exactly once -----------------------------------------------------------
[[archive]]
name = "orders"
destinations = ["/queue/orders"]       # wildcards: "/topic/orders.#"
table = "lake/orders"                  # a folder per day: date=2026-03-01
format = "parquet"                     # or "delta", "iceberg": pip install 'stompbox[pipelines]'
# schema = "id BIGINT, region STRING, amount DOUBLE"    # columns decoded from JSON bodies (or CSV: body-format = "csv")
# selector = "region = 'EU'"
# trigger = 10                         # s between batches; fewer and larger files
# compact-files = 10                   # rewrite the small files of a day as soon as there are so many

# --- Spark SQL over what comes in -----------------------------------------------------------------------------------
[[transform]]
name = "orders-per-minute"
destination = "/queue/orders.per-minute"    # or: table = "lake/orders-per-minute"
mode = "update"                             # a window again with each change; "append": once, when it is over
sql = """
  SELECT window.start AS minute, address, count(*) AS orders, sum(length(body)) AS bytes
  FROM orders GROUP BY window(timestamp, '1 minute'), address
"""
[[transform.source]]
name = "orders"
destinations = ["/queue/orders"]
watermark = "10 minutes"               # how late a message may be

# --- a table back to a destination ----------------------------------------------------------------------------------
[[replay]]
name = "orders-again"
archive = "orders"                     # or: table = "lake/orders"
destination = "/queue/orders.replayed" # without it: where each message was sent
rate = 1000                            # messages/s; 0: as fast as it goes
# from = "2026-03-01T00:00:00Z"
# until = "2026-03-02T00:00:00Z"

# --- figures per address and hour -----------------------------------------------------------------------------------
[[report]]
name = "orders-report"
archives = ["orders"]
dead-letters = ["/queue/DLQ"]
output = "report"                      # report/index.html, and the tables beside it as Parquet

# --- is everything where it should be? Exit code 1 when it is not ---------------------------------------------------
[[audit]]
name = "orders-audit"
archive = "orders"
# sent = "sent.jsonl"                  # what the producer says that it sent: {"id": "42", "checksum": "…"}; the id is in a header
'''
