"""`stompbox completion`: the script with which a shell completes commands, options, and names of the broker.

The scripts are cyclopts's; here is what they lack. That of zsh defines a function and leaves it to a file of its name to be found:
here it registers itself where it is sourced, and works as a file of any name. That of fish offers files wherever a word may stand. None
knows of --context, which is read before all commands.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from stompbox.cli.examples import examples

app = App(name="completion", help_epilogue=examples("completion"))

Shell = Literal["bash", "zsh", "fish"]

# --context has a value, which is no command
_CONTEXT: Final = {
    "bash": [("options_with_values='", "options_with_values='--context ")],
    "zsh": [("_arguments -C \\\n", "_arguments -C \\\n    '--context[Which context.]:context' \\\n")],
    "fish": [("options_with_values '", "options_with_values '--context ")],
}
# $compstate is there while something is completed: then zsh has loaded the file as the function itself
_AFTER: Final[dict[str, str]] = {
    "zsh": """
if (( ${+compstate} )); then
  _cyclopts_stompbox "$@"
elif (( ${+functions[compdef]} )); then
  compdef _cyclopts_stompbox stompbox
fi
""",
    "fish": """
# Files are offered for what takes one alone
complete -c stompbox -f
""",
}


@app.default
def completion(shell: Annotated[Shell, Parameter(help="Which shell.")], /) -> None:
    """Print the script. Names of queues, addresses, groups and users are asked of the broker while you type, by the context in use.

    For bash it is ~/.local/share/bash-completion/completions/stompbox, for fish ~/.config/fish/completions/stompbox.fish, for zsh a
    file _stompbox in a folder of $fpath; or, after compinit, `source <(stompbox completion zsh)`.
    """
    from stompbox.cli.application import app as whole

    script = whole.generate_completion(shell=shell)
    for before, after in _CONTEXT[shell]:
        script = script.replace(before, after, 1 if shell == "zsh" else -1)
    print(script + _AFTER.get(shell, ""))
