"""The Spark data source `stomp`: messages as rows, rows as messages."""
