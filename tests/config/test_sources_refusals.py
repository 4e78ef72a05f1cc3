"""What is wrong in a file, a variable or a flag is refused, with its place and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.config import load
from stompbox.errors import ConfigError
from tests.config.test_sources import empty_folder, file_with  # noqa: F401 - each test is in an empty folder

SIZE = 'a whole number of at least -1 (bytes, or a size such as "512MiB")'

# text of the file, code, what the error says after "stompbox.toml:"
WRONG: list[tuple[str, str, str]] = [
    ('dta = "x"', "config-unknown-key", "1: dta: unknown key; the nearest known name is 'data'"),
    ("\n\nqqqq = 1", "config-unknown-key", "3: qqqq: unknown key; docs/configuration.md lists all names"),
    (
        "[adnim]\nlisten = ''",
        "config-unknown-key",
        "1: adnim: unknown key; the nearest known name is 'admin'",
    ),
    (
        "[admin]\n\nlisen = ''",
        "config-unknown-key",
        "3: admin.lisen: unknown key; the nearest known name is 'listen'",
    ),
    (
        "admin.lisen = ''",
        "config-unknown-key",
        "1: admin.lisen: unknown key; the nearest known name is 'listen'",
    ),
    (
        "admin = {listen = '', lsten = ''}",
        "config-unknown-key",
        "1: admin.lsten: unknown key; the nearest known name is 'listen'",
    ),
    (
        "[[virtual-host]]\nname = 'v'\nusers = ['x']",
        "config-conflict",
        "3: virtual-host[0].users[0]: no [[user]] has the name 'x'",
    ),
    (
        "[[listener]]\nuri = ''",
        "config-unknown-key",
        "2: listener[0].uri: unknown key; the nearest known name is 'url'",
    ),
    (
        "[[address-setting]]\nmatch = '#'\n[[address-setting]]\nmatch = 'a'\nmax-delivery-atempts = 3",
        "config-unknown-key",
        "5: address-setting[1].max-delivery-atempts: unknown key; the nearest known name is 'max-delivery-attempts'",
    ),
    (
        "[[address]]\nname = 'a'\n[[address.queue]]\nname = 'q'\nfiltr = ''",
        "config-unknown-key",
        "5: address[0].queue[0].filtr: unknown key; the nearest known name is 'filter'",
    ),
    (
        "address-setting = [{match = 'a'},\n {match = 'b', expirydelay = 1}]",
        "config-unknown-key",
        "2: address-setting[1].expirydelay: unknown key; the nearest known name is 'expiry-delay'",
    ),
    (
        "[[virtual-host]]\nname = 'v'\n[[virtual-host.address-setting]]\nmatch = 'a'\nring-size = 1",
        "config-unknown-key",
        "5: virtual-host[0].address-setting[0].ring-size: unknown key; the nearest known name is 'default-ring-size'",
    ),
    ("data = 1", "config-value", "1: data: expected a text, not 1"),
    ("memory = 'yes'", "config-value", "1: memory: expected true or false, not 'yes'"),
    ("memory = 1", "config-value", "1: memory: expected true or false, not 1"),
    (
        "log-level = 'LOUD'",
        "config-value",
        "1: log-level: expected one of DEBUG, INFO, WARNING, ERROR, not 'LOUD'",
    ),
    ("log-level = 3", "config-value", "1: log-level: expected one of DEBUG, INFO, WARNING, ERROR, not 3"),
    (
        "disk-full-policy = 'DROP'",
        "config-value",
        "1: disk-full-policy: expected one of FAIL, BLOCK, not 'DROP'",
    ),
    (
        "max-disk-usage = 101",
        "config-value",
        "1: max-disk-usage: expected a whole number from -1 to 100 (percent), not 101",
    ),
    (
        "max-disk-usage = 1.5",
        "config-value",
        "1: max-disk-usage: expected a whole number from -1 to 100 (percent), not 1.5",
    ),
    (
        "max-disk-usage = true",
        "config-value",
        "1: max-disk-usage: expected a whole number from -1 to 100 (percent), not true",
    ),
    ("global-max-size = '1 QiB'", "config-value", f"1: global-max-size: expected {SIZE}, not '1 QiB'"),
    ("global-max-size = -2", "config-value", f"1: global-max-size: expected {SIZE}, not -2"),
    ("global-max-size = '-2K'", "config-value", f"1: global-max-size: expected {SIZE}, not -2048"),
    ("global-max-size = []", "config-value", f"1: global-max-size: expected {SIZE}, not []"),
    ("admin = 1", "config-value", "1: admin: expected a table, not 1"),
    ("user = 1", "config-value", "1: user: expected an array of tables, not 1"),
    ("user = [1]", "config-value", "1: user[0]: expected a table, not 1"),
    ("user = {name = 'a'}", "config-value", "1: user: expected an array of tables, not {'name': 'a'}"),
    ("[user]\nname = 'a'", "config-value", "1: user: expected an array of tables, not {'name': 'a'}"),
    (
        "[[user]]\nname = 'a'\ngroups = 'g'",
        "config-value",
        "3: user[0].groups: expected a list of texts, not 'g'",
    ),
    (
        "[[user]]\nname = 'a'\ngroups = ['g',\n 1]",
        "config-value",
        "4: user[0].groups[1]: expected a text, not 1",
    ),
    ("[[user]]\npassword = 'x'", "config-value", "1: user[0]: the key 'name' is missing: The login."),
    ("[[user]]\nname = ''", "config-value", "2: user[0].name: an empty name is not allowed"),
    ("[[user]]\nname = '  '", "config-value", "2: user[0].name: '  ' is nothing but blanks"),
    ("[[address]]\nname = ' '", "config-value", "2: address[0].name: ' ' is nothing but blanks"),
    ('[[user]]\nname = "a\\u0000"', "config-value", "2: user[0].name: 'a\\x00' has control characters"),
    ("[[user]]\nname = 'a'\npassword = 7", "config-value", "3: user[0].password: expected a text, not this"),
    (
        "[[user]]\nname = 'a'\npassword = '$2b$12$abc'",
        "config-value",
        "3: user[0].password: looks like a hash that is not argon2; `stompbox user hash` prints one that can be used",
    ),
    (
        "[[user]]\nname = 'a'\npassword = 'ENC(abc)'",
        "config-value",
        "3: user[0].password: looks like a hash that is not argon2; `stompbox user hash` prints one that can be used",
    ),
    (
        "[[user]]\nname = 'a'\npassword = '$argon2id$v=19$m=1'",
        "config-value",
        "3: user[0].password: not a whole argon2 hash; `stompbox user hash` prints one",
    ),
    (
        "[[user]]\nname = 'a'\n\n[[user]]\nname = 'a'",
        "config-conflict",
        "5: user[1].name: 'a' is there already, at stompbox.toml:2",
    ),
    (
        "[[permission]]\nmatch = 'a..b'",
        "config-value",
        "2: permission[0].match: 'a..b' is not a pattern: it has an empty word",
    ),
    ("[[permission]]\nmatch = ''", "config-value", "2: permission[0].match: an empty match is not allowed"),
    (
        "[[permission]]\nmatch = 'or*'",
        "config-value",
        "2: permission[0].match: 'or*' is not a pattern: in 'or*' a wildcard is only a part of the word; * and # stand for whole words",
    ),
    (
        "[[permission]]\nmatch = 'a'\nsends = []",
        "config-unknown-key",
        "3: permission[0].sends: unknown key; the nearest known name is 'send'",
    ),
    (
        "[[permission]]\nmatch = 'a'\n[[permission]]\nmatch = 'a'",
        "config-conflict",
        "4: permission[1].match: 'a' is there already, at stompbox.toml:2",
    ),
    (
        "[[address-setting]]\nmatch = '#'\naddress-full-policy = 'WAIT'",
        "config-value",
        "3: address-setting[0].address-full-policy: expected one of PAGE, BLOCK, FAIL, DROP, not 'WAIT'",
    ),
    (
        "[[address-setting]]\nmatch = '#'\nredelivery-delay = '5s'",
        "config-value",
        "3: address-setting[0].redelivery-delay: expected a whole number of at least 0 (ms), not '5s'",
    ),
    (
        "[[address-setting]]\nmatch = '#'\nredelivery-delay-multiplier = nan",
        "config-value",
        "3: address-setting[0].redelivery-delay-multiplier: expected a number of at least 0 (factor), not nan",
    ),
    (
        "[[address-setting]]\nmatch = '#'\ndead-letter-address = 'a.*'",
        "config-value",
        "3: address-setting[0].dead-letter-address: 'a.*' is not one address: *, # and :: have a meaning of their own",
    ),
    (
        "[[address-setting]]\nmatch = '#'\nmin-expiry-delay = 10\nmax-expiry-delay = 5",
        "config-conflict",
        "4: address-setting[0].max-expiry-delay: is below min-expiry-delay, 10",
    ),
    (
        "[[address-setting]]\nexpiry-delay = 10",
        "config-value",
        "1: address-setting[0]: the key 'match' is missing: Addresses this is for",
    ),
    (
        "[[address]]\nname = 'a::b'",
        "config-value",
        "2: address[0].name: 'a::b' is not one address: *, # and :: have a meaning of their own",
    ),
    (
        "[[address]]\nname = 'a'\nrouting-types = ['anycast', 'both']",
        "config-value",
        "3: address[0].routing-types[1]: expected one of ANYCAST, MULTICAST, not 'both'",
    ),
    (
        "[[address]]\nname = 'a'\n[[address.queue]]\nname = 'q'\n[[address.queue]]\nname = 'q'",
        "config-conflict",
        "6: address[0].queue[1].name: 'q' is there already, at stompbox.toml:4",
    ),
    (
        "[[address]]\nname = 'a'\n[[address.queue]]\nname = 'q'\nring-size = -2",
        "config-value",
        "5: address[0].queue[0].ring-size: expected a whole number of at least -1 (messages), not -2",
    ),
    (
        "[[divert]]\nname = 'd'\naddress = 'a'\nforwarding-address = 'a'",
        "config-conflict",
        "4: divert[0].forwarding-address: a divert cannot forward to its own address",
    ),
    (
        "[[divert]]\nname = 'd'\naddress = 'a.#'\nforwarding-address = 'a.late'",
        "config-conflict",
        "4: divert[0].forwarding-address: a divert cannot forward to its own address",
    ),
    (
        "[[divert]]\nname = 'd'\naddress = 'a'\nforwarding-address = 'b'\ntransformer = 'x'",
        "config-value",
        "5: divert[0].transformer: expected module:function, not 'x'",
    ),
    (
        "[[divert]]\nname = 'd'\naddress = 'a'",
        "config-value",
        "1: divert[0]: the key 'forwarding-address' is missing: Where to.",
    ),
    (
        "[[listener]]\nurl = 'tcp://127.0.0.1'",
        "config-listener",
        "2: listener[0].url: tcp://127.0.0.1: '127.0.0.1' has no port; write host:port, port 0 for any free one",
    ),
    (
        "[[listener]]\nurl = 'tcp://127.0.0.1:1?x=1'",
        "config-listener",
        "2: listener[0].url: tcp://127.0.0.1:1: unknown option 'x'; docs/configuration.md lists all names",
    ),
    ("[[listener]]", "config-value", "1: listener[0]: the key 'url' is missing: Where to listen and how"),
    (
        "[[listener]]\nurl = 'tcp://127.0.0.1:1'\n[[listener]]\nurl = 'tcp://127.0.0.1:1?maxHeaders=5'",
        "config-conflict",
        "4: listener[1].url: '127.0.0.1:1' is there already, at stompbox.toml:2",
    ),
    (
        "[admin]\nlisten = '8161'",
        "config-listener",
        "2: admin.listen: '8161' has no port; write host:port, port 0 for any free one",
    ),
    (
        "[admin]\nlisten = 'unix:///s'\nsocket-mode = '9'",
        "config-listener",
        "1: admin: socket-mode is '9'; allowed are octal permissions, as 0660",
    ),
    (
        "[admin]\nsocket-owner = 'a'\nsocket-group = 'b'",
        "config-listener",
        "1: admin: socket-mode, socket-owner and socket-group are for unix:///path alone",
    ),
    (
        "[[listener]]\nurl = 'unix:///s'\n[admin]\nlisten = 'unix:///s'",
        "config-conflict",
        "4: admin.listen: a listener has unix:///s already",
    ),
    (
        "[[listener]]\nurl = 'tcp://127.0.0.1:1'\n[admin]\nlisten = '127.0.0.1:1'",
        "config-conflict",
        "4: admin.listen: a listener has 127.0.0.1:1 already",
    ),
    (
        "wildcard-addresses.delimiter = '::'",
        "config-value",
        "1: wildcard-addresses.delimiter: expected one character of punctuation, but none of , :, not '::'",
    ),
    (
        "[wildcard-addresses]\ndelimiter = ':'",
        "config-value",
        "2: wildcard-addresses.delimiter: expected one character",
    ),
    (
        "[wildcard-addresses]\ndelimiter = ''",
        "config-value",
        "2: wildcard-addresses.delimiter: expected one character",
    ),
    (
        "[wildcard-addresses]\nany-words = 'x'",
        "config-value",
        "2: wildcard-addresses.any-words: expected one character",
    ),
    (
        "[wildcard-addresses]\nsingle-word = '/'",
        "config-value",
        "2: wildcard-addresses.single-word: expected one character",
    ),
    (
        "[wildcard-addresses]\nany-words = '*'",
        "config-conflict",
        "1: wildcard-addresses.single-word: '*' is the any-words already",
    ),
    (
        "[wildcard-addresses]\ndelimiter = '#'",
        "config-conflict",
        "1: wildcard-addresses.any-words: '#' is the delimiter already",
    ),
    (
        "[wildcard-addresses]\nenabled = 'no'",
        "config-value",
        "2: wildcard-addresses.enabled: expected true or false, not 'no'",
    ),
    (
        "[wildcard-addresses]\ndelimeter = '/'",
        "config-unknown-key",
        "2: wildcard-addresses.delimeter: unknown key; the nearest known",
    ),
    (
        "literal-match-markers = '('",
        "config-value",
        "1: literal-match-markers: expected two characters, such as (), or none, not '('",
    ),
    (
        "literal-match-markers = '#)'",
        "config-conflict",
        "1: literal-match-markers: '#' is the any-words of [wildcard-addresses]",
    ),
    (
        "wildcard-addresses.delimiter = '/'\n[[permission]]\nmatch = 'a.#'",
        "config-value",
        "3: permission[0].match: 'a.#' is not a pattern: in 'a.#' a wildcard is only a part of the word; * and # stand for whole words, "
        "and words are divided by /: write 'a/#', or set delimiter = \".\" in [wildcard-addresses]",
    ),
    (
        "wildcard-addresses.any-words = '>'\n[[divert]]\nname = 'd'\naddress = 'a.>'\nforwarding-address = 'b.>'",
        "config-value",
        "5: divert[0].forwarding-address: 'b.>' is not one address: *, > and :: have a meaning of their own",
    ),
    (
        "wildcard-addresses.delimiter = '/'\n[[divert]]\nname = 'd'\naddress = 'a/#'\nforwarding-address = 'a/b'",
        "config-conflict",
        "5: divert[0].forwarding-address: a divert cannot forward to its own address",
    ),
    (
        "wildcard-addresses.delimiter = '/'\n[[virtual-host]]\nname = 'v'\n[[virtual-host.address-setting]]\nmatch = 'a.*'",
        "config-value",
        "5: virtual-host[0].address-setting[0].match: 'a.*' is not a pattern: ",
    ),
    (
        "memory = true\ndata = 'x'",
        "config-conflict",
        "1: memory: memory = true and data exclude each other; leave one out",
    ),
    (
        "max-failed-login-delay = 1",
        "config-conflict",
        "1: max-failed-login-delay: is below failed-login-delay, 250",
    ),
    (
        "[[user]]\nname = 'alice'\n[[virtual-host]]\nname = 'v'\nusers = [\n'alice', 'alise']",
        "config-conflict",
        "6: virtual-host[0].users[1]: no [[user]] has the name 'alise'; the nearest known name is 'alice'",
    ),
    (
        "[[virtual-host]]\nname = 'v'\ndefault = true\n[[virtual-host]]\nname = 'w'\ndefault = true",
        "config-conflict",
        "6: virtual-host[1].default: another virtual host is the default already",
    ),
    (
        "[[virtual-host]]\nname = 'v'\n[[virtual-host.address]]\nname = 'a'\n[[virtual-host.address]]\nname = 'a'",
        "config-conflict",
        "6: virtual-host[0].address[1].name: 'a' is there already, at stompbox.toml:4",
    ),
    (
        "[[virtual-host]]\nname = 'v'\n[[virtual-host]]\nname = 'v'",
        "config-conflict",
        "4: virtual-host[1].name: 'v' is there already",
    ),
    ("data = ", "config-syntax", "1: not TOML: invalid value"),
]


@pytest.mark.parametrize(("text", "code", "problem"), WRONG, ids=[problem[:60] for _, _, problem in WRONG])
def test_a_wrong_file_is_refused_with_file_line_and_key(text: str, code: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file_with(text))
    assert str(caught.value).startswith("stompbox.toml:" + problem)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "flags", "problem"),
    [
        (
            {"STOMPBOX_MAX_DISK_USAGE": "full"},
            {},
            "STOMPBOX_MAX_DISK_USAGE: max-disk-usage: expected a whole number from -1 to 100",
        ),
        ({"STOMPBOX_LISTEN": "tcp://x"}, {}, "STOMPBOX_LISTEN: listener[0].url: tcp://x: 'x' has no port"),
        (
            {"STOMPBOX_USER": "[{nam = 'a'}]"},
            {},
            "STOMPBOX_USER: user[0].nam: unknown key; the nearest known name is 'name'",
        ),
        (
            {"STOMPBOX_MEMORY": "true", "STOMPBOX_DATA": "x"},
            {},
            "STOMPBOX_MEMORY: memory: memory = true and data exclude each other",
        ),
        ({}, {"memory": True, "data": "x"}, "--memory: memory: memory = true and data exclude each other"),
        (
            {},
            {"log-level": "loud"},
            "--log-level: log-level: expected one of DEBUG, INFO, WARNING, ERROR, not 'loud'",
        ),
        ({}, {"admin.listen": "x"}, "--admin: admin.listen: 'x' has no port"),
        (
            {},
            {"listen": ["tcp://h:1", "tcp://h:x"]},
            "--listen: listener[1].url: tcp://h:x: 'x' is not a port",
        ),
        (
            {},
            {"listen": ["tcp://h:1", "tcp://h:1"]},
            "--listen: listener[1].url: 'h:1' is there already, at --listen",
        ),
        ({}, {"colour": "x"}, "--colour: colour: unknown key"),
        ({"STOMPBOX_CONFIG": "gone.toml"}, {}, "gone.toml: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_variable_or_flag_is_named(
    environ: dict[str, str], flags: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, environ, flags)
    assert str(caught.value).startswith(problem)
