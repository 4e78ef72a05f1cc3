"""Pipelines without code: what `stompbox pipeline` runs on Spark, from one TOML file.

settings.py    the tables and keys of the file             checks.py      what spans keys
locations.py   folders, object stores, catalogues          outputs.py     what reports and audits put there
tables.py      Parquet, Delta and Iceberg behind one seam  staging.py     rows as files, before they count
archive.py     destinations to a table                     transform.py   Spark SQL between destinations and tables
replay.py      a table back to a destination               report.py      figures per address and hour, as a page
audit.py       sent, stored, archived: what differs        running.py     sessions, streams, progress, the end
"""
