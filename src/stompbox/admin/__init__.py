"""The admin interface: health, metrics, a JSON API, over HTTP in the broker's own loop.

listening   its sockets, from the start on; the HTTP server behind them is loaded when the first request comes
http        that server: uvicorn's protocol, with limits
app         which path does what
access      who may ask, from where, and what every answer says to browsers
views       what the broker shows of itself, as values
metrics     the same for Prometheus
operations  what an operator can do
"""
