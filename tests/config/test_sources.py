"""Files, environment and flags: precedence, and wrong configurations as a table of text and refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompbox.config import load, read
from stompbox.config.configuration import Configuration
from stompbox.config.settings import AddressFullPolicy, RoutingType
from stompbox.errors import ConfigError

EXAMPLE = """
data = "stompbox-data"

[[listener]]
url = "tcp://127.0.0.1:61613?connectionTtl=60000"

[admin]
listen = "127.0.0.1:8161"

[[user]]
name = "alice"
password = "secret"
groups = ["producers"]

[[permission]]
match = "orders.#"
send = ["producers"]
consume = ["consumers"]

[[address-setting]]
match = "orders.#"
max-delivery-attempts = 3
redelivery-delay = 200
redelivery-delay-multiplier = 2
dead-letter-address = "DLQ"
max-size-bytes = "512MiB"
address-full-policy = "page"
retention-ms = 604800000
default-last-value-key = "id"

[[address]]
name = "orders.new"
routing-types = ["anycast", "Multicast"]
[[address.queue]]
name = "orders.new"
filter = "region = 'EU'"

[[divert]]
name = "audit"
address = "orders.new"
forwarding-address = "audit"
exclusive = false

[[virtual-host]]
name = "test"
default = false
users = ["alice"]
[[virtual-host.address-setting]]
match = "#"
max-delivery-attempts = 1
[[virtual-host.permission]]
match = "#"
send = ["producers"]
[[virtual-host.address]]
name = "x"
"""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def file_with(text: str, name: str = "stompbox.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def test_every_table_of_the_design_is_read() -> None:
    configuration = load(file_with(EXAMPLE))
    assert configuration.listeners[0].parse().options.connection_ttl == 60_000
    assert configuration.admin.endpoint() == ("127.0.0.1", 8161)
    assert (configuration.users[0].name, configuration.users[0].groups) == ("alice", ("producers",))
    assert configuration.permissions[0].grants() == {"send": {"producers"}, "consume": {"consumers"}}
    settings = configuration.settings_of().resolve("orders.new")
    assert (settings.max_delivery_attempts, settings.redelivery_delay_multiplier) == (3, 2.0)
    assert (settings.max_size_bytes, settings.address_full_policy) == (512 << 20, AddressFullPolicy.PAGE)
    assert configuration.addresses[0].routing_types == (RoutingType.ANYCAST, RoutingType.MULTICAST)
    assert configuration.addresses[0].queues[0].filter == "region = 'EU'"
    assert configuration.diverts[0].forwarding_address == "audit"
    host = configuration.virtual_hosts[0]
    assert configuration.settings_of(host).resolve("orders.new").max_delivery_attempts == 1
    grants = configuration.grants_of(host)
    assert grants is not None and grants.best("anything") == {"send": {"producers"}}
    assert host.addresses[0].name == "x"


def test_a_divert_may_take_from_many_addresses() -> None:
    configuration = load(
        file_with("[[divert]]\nname = 'd'\naddress = 'orders.#'\nforwarding-address = 'audit'")
    )
    assert configuration.diverts[0].address == "orders.#"


def test_without_file_there_are_a_listener_and_an_admin_interface_on_loopback() -> None:
    configuration = load()
    assert [table.url for table in configuration.listeners] == ["tcp://127.0.0.1:61613"]
    assert configuration.admin.endpoint() == ("127.0.0.1", 8161)
    assert (configuration.data, configuration.memory) == ("stompbox-data", False)


def test_a_file_that_does_not_speak_of_it_leaves_the_admin_interface() -> None:
    for text in ("", "data = 'd'", "[admin]\nallowed-hosts = ['a.example']", "[admin]\nenabled = true"):
        assert load(file_with(text)).admin.endpoint() == ("127.0.0.1", 8161)


def test_the_admin_interface_is_switched_off() -> None:
    assert load(file_with("[admin]\nenabled = false\nlisten = '127.0.0.1:1'")).admin.endpoint() is None
    flags = {"admin.listen": "127.0.0.1:2", "admin.enabled": True}  # --admin
    assert load(file_with("[admin]\nenabled = false"), {}, flags).admin.endpoint() == ("127.0.0.1", 2)
    assert (
        load(
            file_with("[admin]\nlisten = '127.0.0.1:1'"), {"STOMPBOX_ADMIN_ENABLED": "false"}
        ).admin.endpoint()
        is None
    )
    assert load(
        file_with("[admin]\nlisten = 'off'"), {"STOMPBOX_ADMIN_LISTEN": "127.0.0.1:3"}
    ).admin.endpoint() == ("127.0.0.1", 3)
    assert load(file_with("[admin]\nlisten = 'OFF'")).admin.endpoint() is None
    assert load(file_with("[admin]\nlisten = ''")).admin.endpoint() is None


def test_the_file_is_the_named_one_then_the_environment_s_then_the_one_that_is_here() -> None:
    for name in ("named.toml", "variable.toml", "stompbox.toml"):
        file_with(f'data = "{name}"', name)
    assert load(Path("named.toml"), {"STOMPBOX_CONFIG": "variable.toml"}).data == "named.toml"
    assert load(None, {"STOMPBOX_CONFIG": "variable.toml"}).data == "variable.toml"
    assert load(None, {"STOMPBOX_CONFIG": ""}).data == "stompbox.toml"
    assert load().data == "stompbox.toml"


@pytest.mark.parametrize(
    ("in_file", "in_environment", "as_flag", "data"),
    [
        (None, None, None, "stompbox-data"),
        ("file", None, None, "file"),
        ("file", "variable", None, "variable"),
        ("file", "variable", "flag", "flag"),
        ("file", None, "flag", "flag"),
        (None, "variable", "flag", "flag"),
    ],
)
def test_flag_before_environment_before_file_before_default(
    in_file: str | None, in_environment: str | None, as_flag: str | None, data: str
) -> None:
    path = file_with(f'data = "{in_file}"' if in_file else "")
    environ = {"STOMPBOX_DATA": in_environment} if in_environment else {}
    assert load(path, environ, {"data": as_flag}).data == data


def test_the_admin_table_is_laid_over_key_by_key() -> None:
    path = file_with('[admin]\nlisten = "127.0.0.1:1"\nkey-path = "k"\n')
    admin = load(path, {"STOMPBOX_ADMIN_ALLOWED_HOSTS": "a.example"}, {"admin.listen": "127.0.0.1:2"}).admin
    assert (admin.listen, admin.key_path, admin.allowed_hosts) == ("127.0.0.1:2", "k", ("a.example",))


def test_other_tables_are_replaced_as_a_whole() -> None:
    path = file_with('[[listener]]\nurl = "tcp://127.0.0.1:1"\n[[listener]]\nurl = "tcp://127.0.0.1:2"\n')
    assert len(load(path).listeners) == 2
    assert [table.url for table in load(path, {}, {"listen": ["tcp://127.0.0.1:3"]}).listeners] == [
        "tcp://127.0.0.1:3"
    ]
    assert [table.url for table in load(path, {}, {"listen": "tcp://127.0.0.1:3"}).listeners] == [
        "tcp://127.0.0.1:3"
    ]


@pytest.mark.parametrize(
    ("file", "environ", "flags", "data", "memory"),
    [
        ('data = "x"', {}, {"memory": True}, "stompbox-data", True),
        ("memory = true", {}, {"data": "x"}, "x", False),
        ("memory = true", {"STOMPBOX_DATA": "x"}, {}, "x", False),
        ("", {"STOMPBOX_MEMORY": "true"}, {"data": "x"}, "x", False),
        ("", {"STOMPBOX_DATA": "x"}, {"memory": True}, "stompbox-data", True),
        ('data = "x"\nmemory = false', {}, {}, "x", False),
        ("memory = true", {}, {"memory": False}, "stompbox-data", False),
    ],
)
def test_of_data_and_memory_the_upper_layer_s_counts(
    file: str, environ: dict[str, str], flags: dict[str, object], data: str, memory: bool
) -> None:
    configuration = load(file_with(file), environ, flags)
    assert (configuration.data, configuration.memory) == (data, memory)


def test_no_admin_is_a_flag() -> None:
    assert load(None, {}, {"admin.listen": "off"}).admin.endpoint() is None
    assert load(None, {"STOMPBOX_ADMIN_LISTEN": "off"}).admin.endpoint() is None


def test_every_key_knows_where_it_comes_from() -> None:
    loaded = read(
        file_with('data = "x"\n[[user]]\nname = "a"\n'),
        {"STOMPBOX_LOG_LEVEL": "debug"},
        {"listen": ["tcp://127.0.0.1:1"]},
    )
    assert loaded.where(("data",)) == "stompbox.toml:1"
    assert loaded.where(("user", 0, "name")) == "stompbox.toml:3"
    assert loaded.where(("user", 0, "password")) == "stompbox.toml:2"
    assert loaded.where(("log-level",)) == "STOMPBOX_LOG_LEVEL"
    assert loaded.where(("listener", 0, "url")) == "--listen"
    assert loaded.where(("memory",)) == "default"


def test_a_conflict_of_two_layers_names_the_one_that_comes_second() -> None:
    with pytest.raises(ConfigError, match=r"^--admin: admin.listen: a listener has 127.0.0.1:5 already"):
        load(file_with("[[listener]]\nurl = 'tcp://127.0.0.1:5'"), {}, {"admin.listen": "127.0.0.1:5"})


def test_a_file_that_cannot_be_read_is_named() -> None:
    Path("folder").mkdir()
    with pytest.raises(ConfigError, match=r"^folder: cannot be read: Is a directory$"):
        load(Path("folder"))
    Path("latin.toml").write_bytes(b'data = "\xe9"')
    with pytest.raises(ConfigError, match=r"^latin.toml: not TOML: byte 8 is not UTF-8$"):
        load(Path("latin.toml"))


def test_an_empty_text_unsets_what_a_less_specific_setting_names() -> None:
    text = "[[address-setting]]\nmatch = '#'\nexpiry-address = 'old'\n[[address-setting]]\nmatch = 'a'\nexpiry-address = ''\n"
    settings = load(file_with(text)).settings_of()
    assert (settings.resolve("a").expiry_address, settings.resolve("b").expiry_address) == (None, "old")


def test_two_any_free_ports_do_not_meet() -> None:
    assert (
        len(
            load(
                None,
                {},
                {"listen": ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"], "admin.listen": "127.0.0.1:0"},
            ).listeners
        )
        == 2
    )


def test_the_defaults_are_those_of_the_struct() -> None:
    assert load(file_with("")) == Configuration()


def test_passwords_do_not_show_in_a_repr() -> None:
    text = "[[user]]\nname = 'a'\npassword = 'hunter2'\n[[listener]]\nurl = 'ssl://h:1?keyStorePath=s;keyStorePassword=hunter2'\n"
    text += "[admin]\nlisten = '127.0.0.1:1'\nkey-store-password = 'hunter2'\n"
    assert "hunter2" not in repr(load(file_with(text)))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('[[address]]\nname = "vhost/green.a"', "2: address[0].name"),
        ('[[address]]\nname = "a"\n[[address.queue]]\nname = "vhost/green.a"', "4: address[0].queue[0].name"),
        ('[[address-setting]]\nmatch = "vhost/green.#"', "2: address-setting[0].match"),
        (
            '[[address-setting]]\nmatch = "#"\ndead-letter-address = "vhost/green.a"',
            "3: address-setting[0].dead-letter-address",
        ),
        (
            '[[address-setting]]\nmatch = "#"\nexpiry-address = "vhost/green.a"',
            "3: address-setting[0].expiry-address",
        ),
        (
            '[[divert]]\nname = "d"\naddress = "a"\nforwarding-address = "vhost/green.a"',
            "4: divert[0].forwarding-address",
        ),
        (
            '[[divert]]\nname = "d"\naddress = "vhost/green.a"\nforwarding-address = "a"',
            "3: divert[0].address",
        ),
        ('[[user]]\nname = "vhost/green.bob"\npassword = "x"', "2: user[0].name"),
    ],
)
def test_no_name_is_one_inside_a_virtual_host(text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file_with(text))
    assert str(caught.value).startswith(
        f"stompbox.toml:{where}: names that begin with 'vhost/' are the broker's own"
    )


def test_matches_are_read_in_the_syntax_of_the_same_file_wherever_it_stands() -> None:
    text = "[[address-setting]]\nmatch = 'queue/#'\nredelivery-delay = 5\n[[permission]]\nmatch = '+/x'\nsend = ['a']\n"
    text += "[[divert]]\nname = 'd'\naddress = '(a/#)'\nforwarding-address = 'a/*'\n"
    wildcards = "[wildcard-addresses]\nsingle-word = '+'\n"
    environ = {"STOMPBOX_WILDCARD_ADDRESSES_DELIMITER": "/", "STOMPBOX_LITERAL_MATCH_MARKERS": "()"}
    configuration = load(file_with(text + wildcards), environ)
    settings, grants = configuration.settings_of(), configuration.grants_of()
    assert grants is not None
    assert [settings.resolve(name).redelivery_delay for name in ("queue/a/b", "queue.a")] == [5, 0]
    assert [grants.best(name) is not None for name in ("b/x", "b.x", "+.x")] == [True, False, False]


def test_switched_off_an_address_may_have_any_characters() -> None:
    text = "wildcard-addresses.enabled = false\n[[address]]\nname = 'a.#'\n"
    assert load(file_with(text)).addresses[0].name == "a.#"
    with pytest.raises(ConfigError, match=r"'a::b' is not one address: :: has a meaning of its own"):
        load(file_with(text + "[[address]]\nname = 'a::b'\n"))
