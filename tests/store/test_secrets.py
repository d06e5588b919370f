"""What every store does with data keys and prompts."""

import msgspec

from commonpool.store.contract import Store
from commonpool.store.prompts import PromptHead, PromptLog, SealedPrompt
from commonpool.store.secrets import DataKey

KEY = DataKey("a", 10, "m1", b"\x00wrapped\xff")


def entry(name: str, at_ns: int = 1, tenant: str = "a", size: int = 10) -> SealedPrompt:
    return SealedPrompt(
        PromptHead(tenant, at_ns, name, "app", "m", "chat", 200, size), b"\x00sealed\xff" + name.encode()
    )


def names(store: Store, tenant: str = "a") -> list[str]:
    return [head.request_id for head in store.prompts(tenant, None, 100)]


def test_a_tenant_has_one_data_key_and_the_first_stays(store: Store) -> None:
    assert store.data_key("a") is None
    assert store.add_data_key(KEY) == KEY
    assert store.add_data_key(msgspec.structs.replace(KEY, wrapped=b"other")) == KEY
    other = DataKey("b", 11, "m1", b"b's")
    store.add_data_key(other)
    assert (store.data_key("a"), store.data_keys()) == (KEY, (KEY, other))
    store.forget_data_key("a")
    assert (store.data_key("a"), store.data_keys()) == (None, (other,))


def test_a_data_key_is_wrapped_anew_only_as_it_was_seen(store: Store) -> None:
    store.add_data_key(KEY)
    new = msgspec.structs.replace(KEY, master="m2", wrapped=b"anew")
    assert store.rewrap_data_key(KEY, new)
    assert not store.rewrap_data_key(KEY, msgspec.structs.replace(KEY, master="m3"))
    assert store.data_keys() == (new,)


def test_a_log_is_on_until_it_is_dropped(store: Store) -> None:
    store.save_prompt_log(PromptLog("b", 1, 2, "account:ann"))
    store.save_prompt_log(PromptLog("a", 1, 2, "account:ann"))
    store.save_prompt_log(PromptLog("a", 5, 6, "account:bo"))
    assert store.prompt_logs() == (PromptLog("a", 5, 6, "account:bo"), PromptLog("b", 1, 2, "account:ann"))
    store.drop_prompt_log("b")
    store.drop_prompt_log("nobody")
    assert [log.tenant for log in store.prompt_logs()] == ["a"]


def test_entries_are_a_tenants_own_the_newest_first_in_pages(store: Store) -> None:
    store.add_prompts([entry("1", 5), entry("2", 7), entry("3", 7), entry("4", 6), entry("1", 9, "b")])
    store.add_prompts([msgspec.structs.replace(entry("1", 5), sealed=b"late")])
    assert names(store) == ["3", "2", "4", "1"]
    assert [head.request_id for head in store.prompts("a", (7, "3"), 2)] == ["2", "4"]
    assert [head.request_id for head in store.prompts("a", (5, "1"), 2)] == []
    assert store.prompt("a", "1") == entry("1", 5)
    assert store.prompt("b", "1") == entry("1", 9, "b")
    assert (store.prompt("b", "2"), store.prompt("c", "1")) == (None, None)
    assert (store.prompt_bytes("a"), store.prompt_bytes("c")) == (40, 0)


def test_entries_are_deleted_one_by_one_or_all_of_a_tenant(store: Store) -> None:
    store.add_prompts([entry("1"), entry("2"), entry("1", tenant="b")])
    assert store.delete_prompts("a", "2") == 1
    assert store.delete_prompts("a", "2") == 0
    assert (names(store), names(store, "b")) == (["1"], ["1"])
    assert store.delete_prompts("a") == 1
    assert (names(store), names(store, "b")) == ([], ["1"])


def test_what_is_old_goes_and_then_the_oldest_until_the_rest_fits(store: Store) -> None:
    store.add_prompts([entry(f"{number:03}", number) for number in range(250)] + [entry("1", 1, "b")])
    assert store.trim_prompts("a", 20, 10_000) == 20
    assert store.trim_prompts("a", 20, 10_000) == 0
    assert store.trim_prompts("a", 0, 55) == 225
    assert names(store) == ["249", "248", "247", "246", "245"]
    assert store.trim_prompts("a", 0, 0) == 5
    assert (names(store), names(store, "b")) == ([], ["1"])
