"""Examples at the end of `--help`: lines to copy, with what they do. tests/cli/test_examples.py has the command line read each of them."""

from __future__ import annotations

from typing import Final

ALL: Final = """Examples:

  stompbox serve --data /var/lib/stompbox    a broker, with its console
  stompbox send /queue/orders hello          one message, when it is stored
  stompbox subscribe /topic/prices --json    a line for each message
  stompbox queues --sort -ready --limit 10   where most waits
  stompbox --context prod status             of a broker that has a name

`stompbox COMMAND --help` says more. Exit codes: 1 refused, 2 a wrong argument, 3 nobody answers."""

OF: Final = {
    "send": (
        ("send /queue/orders hello", "returns when it is stored"),
        ("send /queue/orders --lines", "each line of stdin, as it comes"),
        ("send /topic/prices --json", "what `subscribe --json` wrote"),
    ),
    "subscribe": (
        ("subscribe /topic/prices", "bodies as they come"),
        ("subscribe /queue/orders --count 3 --json", "three, and out"),
    ),
    "browse": (("browse /queue/orders --json", "all that waits, and it stays"),),
    "request": (("request /queue/prices EUR --timeout 5", "the reply, on stdout"),),
    "replay": (
        ("replay orders /queue/again --from earliest", "all that is kept"),
        ("replay orders /queue/again --from 4711 --rate 1000", "from there on"),
        ("replay orders /queue/again --read-url stomp://b", "from a follower"),
    ),
    "pipeline": (
        ("pipeline init", "an example to begin with"),
        ("pipeline run pipeline.toml --once", "all there is, and out"),
    ),
    "bench": (("bench --rate 5000 --json", "rates and latencies, for a script"),),
    "serve": (
        ("serve", "durable"),
        ("serve --memory", "nothing is kept"),
    ),
    "config": (
        ("config check", "the first mistake, by file and line"),
        ("config show", "every key, and where it was set"),
    ),
    "import": (
        ("import artemis broker.xml --output stompbox.toml", "users, too"),
        ("import rabbitmq definitions.json", "to stdout"),
        ("import openmq config.properties", "users, too"),
    ),
    "store": (
        ("store check --data data", "is all that is stored whole?"),
        ("store backup backup-1 --data data", "also while a broker runs"),
    ),
    "doctor": (("doctor", "a line for each finding, with what to do"),),
    "context": (
        ("context add prod --url stomp://broker.example", "a name for a broker"),
        ("context use prod", "from now on that one"),
    ),
    "completion": (
        ("completion bash", "what bash is to source"),
        ("completion zsh", "as a file _stompbox in $fpath, or sourced"),
        ("completion fish", "for fish's completions/stompbox.fish"),
    ),
    "status": (("status --json", "for a script; exit code 1: not ready"),),
    "top": (
        ("top", "q quits, Tab: connections"),
        ("top orders --interval 5", "addresses with `orders` in the name"),
    ),
    "check": (("check -w ready=1000 -c ready=10000", "a line, an exit code"),),
    "addresses": (
        ("addresses orders", "those with it in the name"),
        ("addresses pause orders", "nothing goes out of it"),
    ),
    "queues": (
        ("queues --sort -ready --limit 10", "where most waits"),
        ("queues --watch 2", "again every two seconds"),
    ),
    "connections": (("connections close 7", "with an ERROR; what it had goes back"),),
    "frames": (
        ("frames --user alice", "her frames go to the log"),
        ("frames --off", "nobody's any more"),
    ),
    "groups": (
        ("groups", "how far each is behind"),
        ("groups reset lake --to earliest", "it reads all that is kept again"),
    ),
    "sinks": (("sinks delete lake", "of a writer that does not come back"),),
    "user": (
        ("user add eve --group sellers", "asks for the passcode"),
        ("user list", "with groups, and where each was set"),
    ),
    "permissions": (("permissions set 'orders.#' --grant send=sellers", "who may send"),),
    "settings": (("settings set 'orders.#' max-delivery-attempts=5", "they obey at once"),),
    "definitions": (
        ("definitions export all.toml --all", "rights, settings, queues"),
        ("definitions import all.toml --dry-run", "what it would change"),
    ),
    "declare": (
        ("declare queue orders", "it stays without messages"),
        ("declare durable /topic/prices shop eu", "client-id, then name"),
    ),
    "durables": (("durables delete shop eu", "client-id, then name"),),
    "cluster": (
        ("cluster status", "nodes, roles, how far behind"),
        ("cluster promote b", "another node leads"),
    ),
    "reload": (("reload", "what was wrong is said here"),),
    "purge": (("purge orders --yes", "what waits is gone; nobody is asked"),),
    "move": (("move orders parked --count 100", "the oldest hundred"),),
    "redrive": (("redrive DLQ", "back to where they came from"),),
}  # fmt: skip


def examples(name: str) -> str:
    """What ends the help of a command; the examples of its own commands are among them."""
    lines = [(f"stompbox {command}", does) for command, does in OF[name]]
    width = max(len(command) for command, _ in lines)
    return "\n".join(["Examples:", "", *[f"  {command:<{width}}   {does}" for command, does in lines]])
