"""A store with a journal that ends without a word, as in a crash of its process."""

from __future__ import annotations

from stompbox.store.journaled import JournaledStore


def forsake(store: JournaledStore) -> None:
    """What waits stays in the journal."""
    store._journal.close()
    store._database.close()
