"""Users, permissions, settings and whole exports on the command line, against a live broker."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cyclopts import App

from stompbox.cli import declare, definitions, queues, user
from tests.admin.conftest import PLACES
from tests.cli.conftest import Run
from tests.conftest import Served, end, start_broker
from tests.users import users

FILE = users("root:r00t@admins") + '[[virtual-host]]\nname = "green"\n'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("definitions")
    (folder / "stompbox.toml").write_text(FILE)
    served = start_broker(folder, "--config", str(folder / "stompbox.toml"), "--memory", *PLACES)
    yield served
    end(served)


@pytest.fixture
def on_broker(
    served: Served, running: Callable[[App], Run], monkeypatch: pytest.MonkeyPatch
) -> Callable[[App], Run]:
    for name, value in (("ADMIN_URL", served.admin), ("LOGIN", "root"), ("PASSCODE", "r00t")):
        monkeypatch.setenv(f"STOMPBOX_{name}", value)
    return running


def say(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_users(on_broker: Callable[[App], Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = on_broker(user.app)
    say(monkeypatch, "3v3\n")
    assert run("add", "eve", "-g", "sellers", "--group", "buyers") == (0, "user eve is there now\n", "")
    say(monkeypatch, "3v3\n")
    code, out, err = run("add", "eve")
    assert (code, out) == (1, "") and "user-exists" in err
    say(monkeypatch, "other\n")
    assert run("passwd", "eve") == (0, "user eve has another passcode\n", "")
    assert run("change", "eve", "--group", "owners")[1] == "user eve is in owners now\n"
    monkeypatch.setenv("STOMPBOX_LOGIN", "eve")
    monkeypatch.setenv("STOMPBOX_PASSCODE", "other")
    _, out, _ = run("list", "--json")
    found = {one["name"]: one for one in json.loads(out)}
    assert (found["eve"]["groups"], found["eve"]["login"]) == (["owners"], "argon2")
    assert "stompbox.toml:" in run("list", "root")[1]
    monkeypatch.setenv("STOMPBOX_LOGIN", "root")
    monkeypatch.setenv("STOMPBOX_PASSCODE", "r00t")
    assert run("remove", "eve", "--yes") == (0, "user eve removed\n", "")
    code, _, err = run("remove", "root", "--yes")
    assert code == 1 and "defined-elsewhere" in err
    say(monkeypatch, "\n")
    assert run("add", "fay")[::2] == (2, "stompbox user add: an empty passcode is not allowed\n")
    assert run("add", "tls", "--no-passcode")[0] == 0


@pytest.mark.parametrize(
    "app",
    [declare.durables_app, definitions.permissions_app, queues.groups_app, queues.sinks_app],
    ids=lambda app: app.name[0],
)
def test_list_is_what_the_command_does_alone(on_broker: Callable[[App], Run], app: App) -> None:
    """And not a part of a name, of which there is none."""
    run = on_broker(app)
    found = run("--json")
    assert found[0] == 0
    assert run("list", "--json") == found


def test_permissions(on_broker: Callable[[App], Run]) -> None:
    run = on_broker(definitions.permissions_app)
    code, out, _ = run("set", "#", "--grant", "manage=admins", "--grant", "send=nobody,admins")
    assert code == 0
    assert (
        out
        == "permission for # is set\nwarning: no user is in the group 'nobody' that a [[permission]] names\n"
    )
    lines = run("list")[1].splitlines()
    assert [line.split()[:3] for line in lines if "manage" in line] == [["#", "manage", "admins"]]
    assert run("set", "x", "--grant", "send")[0] == 2
    code, _, err = run("set", "x", "--grant", "sned=a")
    assert code == 1 and "set: sned: unknown key; the nearest known name is 'send'" in err
    assert run("delete", "#", "--yes") == (0, "permission for # deleted\n", "")


def test_settings(on_broker: Callable[[App], Run]) -> None:
    run = on_broker(definitions.settings_app)
    told = "nobody has set anything for address un.known; --all shows what it obeys by default\n"
    assert run("un.known")[:2] == (0, told)
    assert run("set", "a.#", "max-size-bytes=1MiB", "default-persistent=false", "expiry-delay=-1")[:2] == (
        0, "settings of a.# are set\n",
    )  # fmt: skip
    found = {line.split()[0]: line.split()[1:3] for line in run("a.b")[1].splitlines()[3:] if line.strip()}
    assert found == {
        "max-size-bytes": ["1048576", "a.#"],
        "default-persistent": ["false", "a.#"],
        "expiry-delay": ["-1", "a.#"],
    }
    assert json.loads(run("a.b", "--json")[1])["max-size-bytes"]["source"] == "run time"
    assert run("set", "a.#", "max-size-bytes=")[0] == 0
    assert "max-size-bytes" not in run("a.b")[1] and "max-size-bytes" in run("a.b", "--all")[1]
    assert run("set", "a.#")[::2] == (
        2,
        "stompbox settings set: there is nothing to set; KEY=VALUE is missing\n",
    )
    code, _, err = run("set", "a.#", "expiry-delay=5", "max-size-bytes=much")
    assert code == 1 and "set: max-size-bytes: " in err and "not 'much'" in err
    assert run("set", "x", "redelivery-delay=1", "--virtual-host", "green")[0] == 0
    assert run("delete", "x", "--virtual-host", "green", "--yes")[0] == 0


def test_an_export_is_imported_again(
    on_broker: Callable[[App], Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, file = on_broker(definitions.app), tmp_path / "all.toml"
    say(monkeypatch, "[[user]]\nname = 'ida'\npassword = 'x'\n[[address]]\nname = 'ida'\n")
    assert (
        run("import")[1] == "1 user, 0 permissions, 0 address settings defined; 1 address and 0 queues made\n"
    )
    assert run("export", str(file), "--all") == (0, "", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "[[user]]" in run("export")[1] and "root" not in run("export")[1]
    code, out, _ = run("import", str(file), "--dry-run")
    assert code == 0
    assert "users" in out and "would be defined" in out and "left out" in out
    file.write_text("[[user]]\nnam = 'x'\n")
    code, _, err = run("import", str(file))
    assert code == 1 and "line 2: user[0].nam: unknown key" in err
    code, _, err = run("import", str(tmp_path / "gone.toml"))
    assert code == 2 and "gone.toml cannot be read" in err
