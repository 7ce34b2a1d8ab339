"""The object store against a real server: created once, never changed, failures in one sentence."""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pydantic import SecretStr

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.infra.errors import (
    BucketError,
    CredentialsError,
    ObjectExistsError,
    ObjectMissingError,
    StoreUnreachableError,
)
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.objects.endpoint import external
from tilewatch.infra.settings import Settings

RACER = """
import json, sys
from pydantic import SecretStr
from tilewatch.infra.errors import ObjectExistsError
from tilewatch.infra.objects import Endpoint, ObjectStore
name, *keys = json.loads(sys.argv[1])
url, bucket, access_key, secret_key = json.loads(sys.stdin.readline())
store = ObjectStore(Endpoint(url, bucket, SecretStr(access_key), SecretStr(secret_key)))
won = 0
for key in keys:
    try:
        won += store.put_new(key, name.encode())
    except ObjectExistsError:
        pass
print(won)
"""


def _as_json(endpoint: Endpoint) -> str:
    return json.dumps(
        [
            endpoint.url,
            endpoint.bucket,
            endpoint.access_key.get_secret_value(),
            endpoint.secret_key.get_secret_value(),
        ]
    )


def test_a_second_put_of_the_same_content_does_nothing(object_store: ObjectStore) -> None:
    assert object_store.put_new("a/b", b"content") is True
    assert object_store.put_new("a/b", b"content") is False
    assert object_store.get("a/b") == b"content"


def test_a_put_of_another_content_is_refused_and_changes_nothing(object_store: ObjectStore) -> None:
    object_store.put_new("a/b", b"content")
    with pytest.raises(ObjectExistsError, match="a/b"):
        object_store.put_new("a/b", b"CONTENT")
    assert object_store.get("a/b") == b"content"


def test_the_checksum_of_the_content_is_stored(object_store: ObjectStore) -> None:
    object_store.put_new("empty", b"")
    assert object_store.head("empty").checksum == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="


def test_a_pointer_is_replaced(object_store: ObjectStore) -> None:
    object_store.replace("latest", b"v1")
    object_store.replace("latest", b"v2")
    assert object_store.get("latest") == b"v2"


def test_listing_is_sorted_and_reads_every_page(object_store: ObjectStore) -> None:
    keys = [f"many/{number:04d}" for number in range(1005)]
    for key in keys:
        object_store.put_new(key, b"x")
    assert [info.key for info in object_store.list("many/")] == keys
    assert object_store.delete_prefix("many/") == 1005
    assert list(object_store.list("")) == []


def test_a_missing_object_is_said_to_be_missing(object_store: ObjectStore) -> None:
    assert object_store.exists("nothing") is False
    with pytest.raises(ObjectMissingError, match="nothing"):
        object_store.get("nothing")


def test_of_four_processes_creating_the_same_keys_exactly_one_wins_each(object_store: ObjectStore) -> None:
    keys = [f"contested/{number}" for number in range(25)]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, json.dumps([name, *keys])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    answers = [racer.communicate(_as_json(object_store.endpoint) + "\n")[0] for racer in racers]
    assert sum(int(answer) for answer in answers) == len(keys)
    assert {object_store.get(key) for key in keys} <= {b"a", b"b", b"c", b"d"}


def test_an_unreachable_store_says_so_with_its_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(StoreUnreachableError, match=url) as caught:
        ObjectStore(Endpoint(url, "bucket", SecretStr("key"), SecretStr("hush-hush"))).check()
    assert "tilewatch up" in caught.value.hint


def test_a_store_that_accepts_but_never_answers_counts_as_unreachable() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnreachableError, match=url):
            ObjectStore(Endpoint(url, "bucket", SecretStr("key"), SecretStr("secret"))).check()


def test_wrong_credentials_are_named_and_never_shown(
    seaweed: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    wrong = ObjectStore(replace(seaweed, secret_key=SecretStr("hush-hush")))
    with pytest.raises(CredentialsError, match="credentials") as caught:
        wrong.check()
    with pytest.raises(CredentialsError):
        wrong.put_new("a", b"b")
    assert "s3_secret_key" in caught.value.hint
    assert (
        "hush"
        not in f"{caught.value}{caught.value.hint}{caught.value.__cause__}{wrong.endpoint}{caplog.text}"
    )


def test_a_missing_bucket_is_named(seaweed: Endpoint) -> None:
    with pytest.raises(BucketError, match="no-such-bucket"):
        ObjectStore(replace(seaweed, bucket="no-such-bucket")).check()


def test_a_proxy_in_the_environment_does_not_come_between_a_host_and_its_own_store(seaweed: Endpoint) -> None:
    code = RACER.replace("won = 0", "store.check(); won = 0")
    environment = {k: v for k, v in os.environ.items() if k.lower() != "no_proxy"}
    answer = subprocess.run(
        [sys.executable, "-c", code, json.dumps(["a", "behind-a-proxy"])],
        input=_as_json(seaweed),
        env={**environment, "HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
    )
    assert answer.stdout == "1\n", answer.stderr


def test_errors_keep_their_hint_between_processes() -> None:
    error = pickle.loads(pickle.dumps(CredentialsError("refused", "check the key")))
    assert (str(error), error.hint, type(error)) == ("refused", "check the key", CredentialsError)
    assert isinstance(error, TilewatchError)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[ObjectStore]:
    """Another implementation of S3, reached by settings alone."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    _, port = server.get_host_and_port()
    settings = Settings(
        home=tmp_path,
        s3_endpoint=f"http://127.0.0.1:{port}",
        s3_access_key=SecretStr("key"),
        s3_secret_key=SecretStr("secret"),
        s3_checksum_mode="when_required",
    )
    store = ObjectStore(external(settings))
    store.endpoint.client().create_bucket(Bucket=store.bucket)
    yield store
    server.stop()


def test_a_foreign_store_keeps_the_same_promises(foreign: ObjectStore) -> None:
    foreign.check()
    assert (foreign.put_new("a", b"1"), foreign.put_new("a", b"1")) == (True, False)
    with pytest.raises(ObjectExistsError):
        foreign.put_new("a", b"2")
