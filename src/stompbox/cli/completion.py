"""`stompbox completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from stompbox.cli.examples import examples

app = App(name="completion", help_epilogue=examples("completion"))


@app.default
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Which shell.")], /) -> None:
    """Print the script. For bash: `stompbox completion bash > ~/.local/share/bash-completion/completions/stompbox`."""
    from stompbox.cli.application import app as whole

    print(whole.generate_completion(shell=shell))
