"""Rule: what a login may not do at a target is known before a run, with the statement that grants it. No trace stays.

Real servers, whose users lack one permission each, and a real Kafka broker with access control.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.databases import Running
from tests.sinks.staged_rows import Folded, Target

from headrace.changes import TableId
from headrace.errors import HeadraceError
from headrace.permissions import MissingPermission, Permissions
from headrace.sinks.jdbc.dialect import TableName
from headrace.sinks.jdbc.mariadb import Grants
from headrace.sinks.jdbc.sink import JdbcSink
from headrace.sinks.kafka.permissions import PermissionsAdmin, kafka_jvm
from headrace.sinks.kafka.sink import KafkaSink
from headrace.sinks.kafka.topics import topic_creation
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.iceberg.sink import IcebergSink
from headrace.testing.change_history import table

ITEMS = table("items", id="int32", a="string")
_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")
PRIVILEGES = {
    "postgresql": [
        ("USAGE", "SCHEMA public"),
        ("CREATE", "SCHEMA public"),
        *((name, "items") for name in _ROWS),
        *((name, "_headrace_progress") for name in _ROWS),
    ],
    "mariadb": [(name, "{}.*") for name in ("CREATE", "DROP", *_ROWS)],
}


@dataclass
class Login(Running):
    """A user of a server who may do what it is granted."""

    user: str = ""

    def sink(self, **options: Any) -> JdbcSink:
        return super().sink(**{"user": self.user, "password": "mirror", **options})

    def missing(self, **options: Any) -> tuple[MissingPermission, ...]:
        permissions = self.sink(**options).permissions([TableId("shop", "dbo", "items")], [])
        assert permissions.known
        return permissions.missing


@pytest.fixture
def login(database: Running) -> Login:
    """A user who may do nothing in a database of its own."""
    user = f"mirror_{database.database}"
    if database.kind == "postgresql":
        database.run(f"CREATE ROLE {user} LOGIN", "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    else:
        database.server.run(f"CREATE USER {user}@'%' IDENTIFIED BY 'mirror'", database=None)
        # Somewhere to log in to.
        database.server.run(f"GRANT SHOW VIEW ON {escaped(database)}.* TO {user}@'%'", database=None)
    return Login(database.kind, database.server, database.database, user)


def escaped(database: Running) -> str:
    """A database's name in a GRANT of MariaDB, where an underscore is a wildcard."""
    return "`" + database.database.replace("_", r"\_") + "`"


def follow(database: Running, remedy: str) -> None:
    """Do what a remedy says, as somebody who may."""
    statement = re.fullmatch(r"Run: (.+?)(; or .*)?\.", remedy)
    assert statement is not None, remedy
    database.server.run(statement[1], database=database.database)


def batch(login: Login, number: int) -> bool:
    """Write a batch that updates, inserts and deletes, and takes the target over, so that its owner changes too."""
    rows = [Folded("u", f"{number:04}", {"id": number, "a": "x"}), Folded("d", f"{number:04}", {"id": number - 1})]
    rows.append(Folded("u", f"{number:04}", {"id": -1, "a": str(number)}))
    return Target(login, ITEMS).write(rows, number, owner=f"owner {number}", takeover=True)


def tables_of(database: Running) -> list[tuple[Any, ...]]:
    return database.ask(
        "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%headrace%' ORDER BY 1"
    )


def test_each_permission_that_a_batch_needs_is_found_missing_and_granted_as_the_remedy_says(
    database: Running, login: Login
) -> None:
    Target(database, ITEMS).write([Folded("u", "0", {"id": 0, "a": "x"})])
    for _ in range(3):
        for missing in login.missing():
            follow(database, missing.remedy)
    assert login.missing() == ()
    assert batch(login, 1)
    there = tables_of(database)
    for number, (privilege, where) in enumerate(PRIVILEGES[database.kind], 2):
        location, host = where.format(escaped(database)), "" if database.kind == "postgresql" else "@'%'"
        database.server.run(f"REVOKE {privilege} ON {location} FROM {login.user}{host}", database=database.database)
        [missing] = login.missing()
        assert (missing.required, f"the permission {privilege} " in missing.sentence) == (True, True), missing
        with pytest.raises(HeadraceError):
            batch(login, number)
        follow(database, missing.remedy)
        assert login.missing() == ()
        assert batch(login, number)
    assert tables_of(database) == there


def test_a_schema_that_is_not_there_needs_the_permission_to_create_it(database: Running, login: Login) -> None:
    other = f"{database.database}_b"
    [*_, missing] = [
        one for one in login.missing(table_name=f"{other}.items") if other in one.sentence and one.required
    ]
    if database.kind == "postgresql":
        assert "CREATE ON DATABASE" in missing.remedy
    follow(database, missing.remedy)
    assert not [one for one in login.missing(table_name=f"{other}.items") if other in one.sentence and one.required]


def test_a_table_of_somebody_else_can_be_filled_and_not_changed(database: Running, login: Login) -> None:
    if database.kind != "postgresql":
        database.server.run(
            f"GRANT CREATE, DROP, SELECT, INSERT, UPDATE, DELETE ON {escaped(database)}.* TO {login.user}@'%'",
            database=None,
        )
    else:
        database.run("CREATE TABLE items (id int PRIMARY KEY)", f"GRANT ALL ON items TO {login.user}")
        database.run(f"GRANT ALL ON SCHEMA public TO {login.user}")
    [missing] = login.missing()
    assert not missing.required
    follow(database, missing.remedy)
    assert login.missing() == ()


@pytest.mark.parametrize(
    ("line", "name", "lacking"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION", "db.t", ""),
        ("GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*00'", "db.t", "SELECT, INSERT"),
        ("GRANT SELECT, INSERT ON `db`.* TO `u`@`%`", "db.t", ""),
        ("GRANT SELECT, INSERT ON `db`.* TO `u`@`%`", "db2.t", "SELECT, INSERT"),
        ("GRANT SELECT, INSERT ON `d_`.* TO `u`@`%`", "db.t", ""),
        (r"GRANT SELECT, INSERT ON `d\_`.* TO `u`@`%`", "db.t", "SELECT, INSERT"),
        (r"GRANT SELECT, INSERT ON `d\_`.* TO `u`@`%`", "d_.t", ""),
        ("GRANT SELECT, INSERT ON `d%`.* TO `u`@`%`", "data.t", ""),
        ("GRANT SELECT ON `db`.`t` TO `u`@`%`", "db.t", "INSERT"),
        ("GRANT SELECT, INSERT ON `d_`.`t` TO `u`@`%`", "db.t", "SELECT, INSERT"),
        ("GRANT SELECT (`a`, `b`), INSERT ON `db`.`t` TO `u`@`%`", "db.t", "SELECT"),
        ("GRANT SELECT, INSERT ON `a``b`.`t` TO `u`@`%`", "a`b.t", ""),
        ("GRANT EXECUTE ON PROCEDURE `db`.`t` TO `u`@`%`", "db.t", "SELECT, INSERT"),
        ("GRANT `writers` TO `u`@`%`", "db.t", "SELECT, INSERT"),
    ],
)
def test_what_a_line_of_show_grants_gives(line: str, name: str, lacking: str) -> None:
    schema, _, table_name = name.partition(".")
    missing = Grants([line]).lacking(TableName(schema, table_name), ("SELECT", "INSERT"))
    assert ", ".join(missing) == lacking


# Folders.


@pytest.mark.parametrize("kind", [DeltaSink, IcebergSink])
def test_a_folder_takes_a_file_that_is_gone_at_once(tmp_path: Path, kind: Any) -> None:
    option = "path" if kind is DeltaSink else "warehouse"
    sink = kind.of({option: str(tmp_path / "lake/more")})
    permissions = sink.permissions([], [])
    assert (permissions.known, permissions.missing, list(tmp_path.iterdir())) == (True, (), [])
    elsewhere = kind.of({option: "s3a://bucket/lake"}).permissions([], [])
    assert (elsewhere.known, elsewhere.missing) == (False, ())


def test_a_folder_that_takes_no_file_is_reported(tmp_path: Path) -> None:
    # Of a process's folder in /proc even root can't make a file, though its mode says so.
    sink = DeltaSink.of({"path": f"/proc/{os.getpid()}/lake"})
    [missing] = sink.permissions([], []).missing
    assert f"/proc/{os.getpid()} takes no file" in missing.sentence


def test_the_database_of_a_catalogue_is_asked(database: Running) -> None:
    def iceberg(uri: str, **options: Any) -> IcebergSink:
        given = {"catalog_type": "jdbc", "uri": uri, "user": "cdc", "password": "cdc", "warehouse": "/tmp", **options}
        return IcebergSink.of(given)

    assert iceberg(database.url).reach() == "The catalogue's database accepts the login."
    with pytest.raises(HeadraceError, match=r"The catalogue's database: .* refuses the login"):
        iceberg(database.url, user="nobody").reach()
    assert "shows when a run starts" in iceberg("jdbc:sqlite:/tmp/catalogue.db").reach()


# Kafka.

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{_LOGIN} username="admin" password="admin-secret" '
    'user_admin="admin-secret" user_writer="writer-secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "auto.create.topics.enable": "false",
}


def kafka(bootstrap: str, user: str, password: str = "", **options: str) -> KafkaSink:
    given = {
        "bootstrap.servers": bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{_LOGIN} username="{user}" password="{password or f"{user}-secret"}";',
        **options,
    }
    return KafkaSink.of(given)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from headrace_emulators.kafka.broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("secured"), settings=SECURED) as broker:
        yield broker.bootstrap


class KafkaPermissions:
    """What `kafka-acls` does, as the administrator."""

    def __init__(self, jvm: Any, bootstrap: str) -> None:
        self._jvm = jvm
        admin = kafka(bootstrap, "admin")
        properties = jvm.java.util.Properties()
        for name, value in admin._client_settings.items():
            properties.setProperty(name, value)
        self.admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)

    def follow(self, remedy: str) -> None:
        user = re.search(r"--allow-principal '(\S+)'", remedy)
        assert user is not None, remedy
        topic = re.search(r"--topic '(\S+)'", remedy)
        assert topic is not None, remedy
        for operation in re.findall(r"--operation (\w+)", remedy):
            self.allow(user[1], operation.upper(), "TOPIC", topic[1])

    def allow(self, user: str, operation: str, kind: str, name: str) -> None:
        common = self._jvm.org.apache.kafka.common
        resource = common.resource.ResourcePattern(
            getattr(common.resource.ResourceType, kind), name, common.resource.PatternType.LITERAL
        )
        allowed = common.acl.AclPermissionType.ALLOW
        entry = common.acl.AccessControlEntry(user, "*", getattr(common.acl.AclOperation, operation), allowed)
        self.admin.createAcls([common.acl.AclBinding(resource, entry)]).all().get()

    def missing(self, sink: KafkaSink, topics: list[str]) -> list[MissingPermission]:
        """What `permissions` finds, without a JVM of its own."""
        with PermissionsAdmin(self._jvm, sink._client_settings) as admin:
            return admin.missing_permissions(topics, topic_creation(sink.settings.topic_creation))

    def make(self, topic: str) -> None:
        self.admin.createTopics([self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, 1, 1)]).all().get()

    def topics(self) -> set[str]:
        return set(self.admin.listTopics().names().get())


@pytest.mark.system
@pytest.mark.kafka
def test_what_a_login_may_not_do_in_kafka_is_reported_and_granted_as_the_remedy_says(bootstrap: str) -> None:
    assert kafka(bootstrap, "writer").reach() == "Kafka accepts the login; it has 1 broker."
    for wrong in (kafka(bootstrap, "writer", "wrong-secret"), kafka(bootstrap, "nobody")):
        with pytest.raises(HeadraceError, match="SaslAuthenticationException") as refused:
            wrong.reach()
        assert "secret" not in str(refused.value)
    creating = {"topic.creation.default.partitions": "2"}
    with kafka_jvm() as jvm:
        made = KafkaPermissions(jvm, bootstrap)
        with closing(made.admin):
            made.make("shop.items")
            writer, settled = kafka(bootstrap, "writer"), kafka(bootstrap, "admin")

            [missing] = made.missing(writer, ["shop.items"])
            assert (missing.required, missing.sentence) == (
                True,
                "The login lacks the permissions Write, Describe on topic 'shop.items' (its messages).",
            )
            made.allow("User:writer", "DESCRIBE", "TOPIC", "shop.items")
            [missing] = made.missing(writer, ["shop.items"])
            assert missing.sentence == "The login lacks the permission Write on topic 'shop.items' (its messages)."
            assert missing.remedy == (
                f"Run: kafka-acls --bootstrap-server {bootstrap} --add --allow-principal 'User:writer' "
                "--operation Write --topic 'shop.items'."
            )
            made.follow(missing.remedy)
            assert writer.permissions([], ["shop.items"]) == Permissions(
                "The login has every permission to write 1 topic."
            )

            # A topic that is not there, which brokers would not make.
            [missing] = made.missing(settled, ["shop.items", "shop.new"])
            assert missing.required
            assert "There is no topic 'shop.new'" in missing.sentence
            assert "topic.creation.default.partitions" in missing.remedy
            assert made.missing(kafka(bootstrap, "admin", **creating), ["shop.new"]) == []
            made.allow("User:writer", "DESCRIBE", "TOPIC", "shop.new")
            [missing] = made.missing(writer, ["shop.new"])
            assert (missing.required, "may not ask whether brokers make" in missing.sentence) == (False, True)
            [missing] = made.missing(kafka(bootstrap, "writer", **creating), ["shop.new"])
            assert (
                missing.sentence
                == "The login lacks the permissions Create, Write, Describe on topic 'shop.new' (its messages)."
            )
            made.follow(missing.remedy)
            assert made.missing(kafka(bootstrap, "writer", **creating), ["shop.new"]) == []
            wrong = {**creating, "topic.creation.default.cleanup.policy": "shred"}
            [missing] = made.missing(kafka(bootstrap, "admin", **wrong), ["shop.new"])
            assert "refuses to create the topic 'shop.new'" in missing.sentence
            # Nothing was made by asking.
            assert made.topics() == {"shop.items"}
