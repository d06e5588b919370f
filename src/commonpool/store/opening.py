"""Opens the store that a configuration names."""

import os
from collections.abc import Mapping

from commonpool.config.secrets import SecretMissingError, secret
from commonpool.config.structs import Config
from commonpool.store.contract import Store, StoreError
from commonpool.store.sqlite import SqliteStore

_SCHEMES = ("postgresql://", "postgres://")


def open_store(config: Config, environment: Mapping[str, str] = os.environ) -> Store:
    """The store; it locks `config.state`, where the journal is. StoreError says why it cannot be opened.

    `environment` is where an `env:NAME` in `store.url` is looked up.
    """
    if config.store_url is None:
        return SqliteStore(config.state)
    url = config.store_url
    if not url.startswith(_SCHEMES):
        try:
            url = secret("store.url", config.store_url, environment)
        except SecretMissingError as error:
            raise StoreError(str(error)) from None
        if not url.startswith(_SCHEMES):
            raise StoreError(
                f"store.url is {config.store_url}, and what is there is no URL of a PostgreSQL database; write it like "
                "postgresql://USER:PASSWORD@HOST:5432/DATABASE."
            )
    try:
        from commonpool.store.postgres import PostgresStore  # noqa: PLC0415 - only this needs asyncpg
    except ModuleNotFoundError:
        raise StoreError(
            "store.url names a PostgreSQL database, and asyncpg is not installed; run "
            "`pip install 'commonpool[postgresql]'`."
        ) from None
    return PostgresStore(url, config.state)
