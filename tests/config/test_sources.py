"""Files: read once, with what they include; a tenant's own file replaces that tenant wherever it stands."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from commonpool.config import (
    ConfigError,
    Sources,
    is_tenant_text,
    load,
    load_tenant,
    merge_tenant,
    parse_sources,
    read_sources,
)
from commonpool.config.sources import FILE_BYTES_MAX

Edit = Callable[..., str]

ISSUE_BLOCK = """\
tenant:
  guaranteed: 2_gpu
  elastic_cap: 4_gpu
  borrowable: true
queue:
  priority: {interactive: 9, batch: 3}
  max_wait: 120s
reclaim:
  policy: borrow_not_preempt
  return_when: task_done
"""


def write(folder: Path, **files: str) -> Path:
    """Files by stem, `tenants_…` in a folder of that name; the path of the main one."""
    (folder / "tenants").mkdir(exist_ok=True)
    for stem, text in files.items():
        where, _, name = stem.rpartition("_")
        (folder / where / f"{name}.yaml").write_text(text)
    return folder / "main.yaml"


def problems(call: Callable[[], object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value).splitlines()


def test_the_same_block_nested_and_as_a_file(tmp_path: Path, base: str) -> None:
    head = base[: base.index("tenants:")]
    block = "".join(f"    {line}\n" for line in ISSUE_BLOCK.splitlines())
    nested = load(write(tmp_path, main=f"{head}tenants:\n  support:\n{block}"))
    included = load(write(tmp_path, main=f"{head}include: [tenants/*.yaml]\n", tenants_support=ISSUE_BLOCK))
    assert nested == included
    assert nested.policy.tenants["support"].guaranteed == 2000


def test_a_whole_configuration_travels_as_one_value(tmp_path: Path, edit: Edit) -> None:
    path = write(tmp_path, main=edit(end="include: [tenants/*.yaml]\n"), tenants_b="{}", tenants_a=ISSUE_BLOCK)
    (tmp_path / "tenants" / ".hidden.yaml").write_text("nonsense")
    (tmp_path / "tenants" / "c.txt").write_text("nonsense")
    sources = read_sources(path)
    assert [Path(file).name for file in sources.files] == ["main.yaml", "a.yaml", "b.yaml"]
    there = msgspec.json.decode(msgspec.json.encode(sources), type=Sources)
    assert parse_sources(there) == load(path)
    assert list(load(path).policy.tenants) == ["support", "a", "b"]


def test_relative_paths_start_from_the_file(tmp_path: Path, base: str) -> None:
    config = load(write(tmp_path, main=base))
    assert config.state == tmp_path / "var"
    engine = config.models["small"].engine
    assert getattr(engine, "file", None) == str(tmp_path / "small.gguf")


def test_an_error_in_an_included_file_names_it(tmp_path: Path, edit: Edit) -> None:
    path = write(
        tmp_path,
        main=edit("4_gpu", "4_cpu", end="include: [tenants/*.yaml, tenants/d.yaml]\n"),
        tenants_a="tenant:\n  guaranteed: many\n",
        tenants_b="tenant: {group: x}\n",
        tenants_c="a: [\n",
    )
    sentence = "is not an amount of GPUs; write it like 2_gpu, 0.5 gpu or 500 milli_gpu"
    assert problems(lambda: load(path)) == [
        f'{tmp_path}/main.yaml:2: pools.main.gpus: "4_cpu" {sentence}',
        f"{tmp_path}/main.yaml:14: include.1: there is no file tenants/d.yaml beside {tmp_path}/main.yaml",
        f'{tmp_path}/tenants/a.yaml:2: tenants.a.tenant.guaranteed: "many" {sentence}',
        f'{tmp_path}/tenants/b.yaml:1: tenants.b.tenant.group: there is no group "x"; known: none',
        (
            f"{tmp_path}/tenants/c.yaml:2: is not valid YAML: did not find expected node content "
            "(while parsing a flow node)"
        ),
    ]


def test_a_tenant_is_defined_once(tmp_path: Path, edit: Edit) -> None:
    path = write(tmp_path, main=edit(end="include: [tenants/*.yaml]\n"), tenants_support=ISSUE_BLOCK)
    assert problems(lambda: load(path)) == [
        f"{tmp_path}/tenants/support.yaml: defines tenant support, which {tmp_path}/main.yaml defines too; remove one"
    ]


def test_a_file_s_name_is_the_tenant_s(tmp_path: Path, edit: Edit) -> None:
    path = write(tmp_path, main=edit(end="include: [tenants/*.yaml]\n"), tenants_Support=ISSUE_BLOCK)
    assert problems(lambda: load(path)) == [
        (
            f"{tmp_path}/tenants/Support.yaml: \"Support\" is not a name: 1 to 63 of a to z, 0 to 9, '.', '_' and '-', "
            "the first a letter or a digit; the file's name is the tenant's"
        )
    ]


def test_files_that_cannot_be_read(tmp_path: Path, base: str) -> None:
    text, folder, binary, large = (tmp_path / name for name in ("none.yaml", "folder", "b.yaml", "l.yaml"))
    folder.mkdir()
    binary.write_bytes(b"a: 1\nb: \xff\n")
    large.write_text("#" * (FILE_BYTES_MAX + 1))
    assert problems(lambda: load(text)) == [f"{text}: does not exist; check the path"]
    assert problems(lambda: load(folder)) == [f"{folder}: is a folder; name the file in it"]
    assert problems(lambda: load(binary)) == [f"{binary}:2: is not UTF-8 text; save it as UTF-8"]
    assert problems(lambda: load(large)) == [f"{large}: is larger than 1024 KiB, which no configuration is"]
    assert problems(lambda: load(Path("/dev/null"))) == ["/dev/null: is not a regular file"]
    assert problems(lambda: load(tmp_path / ("x" * 5000))) == [
        f"{tmp_path / ('x' * 5000)}: cannot be read: File name too long"
    ]
    marked = tmp_path / "bom.yaml"
    marked.write_bytes(b"\xef\xbb\xbf" + base.encode())
    assert load(marked).policy.pools["main"].milli_gpu == 4000


def test_an_included_file_that_cannot_be_read_is_told_with_the_rest(tmp_path: Path, edit: Edit) -> None:
    path = write(tmp_path, main=edit("4_gpu", "4_cpu", end="include: [tenants/*.yaml]\n"))
    (tmp_path / "tenants" / "a.yaml").write_bytes(b"\xff")
    assert [line.partition(": ")[0] for line in problems(lambda: load(path))] == [
        f"{tmp_path}/main.yaml:2",
        f"{tmp_path}/tenants/a.yaml:1",
    ]
    assert problems(lambda: read_sources(path)) == [f"{tmp_path}/tenants/a.yaml:1: is not UTF-8 text; save it as UTF-8"]


def test_a_tenant_s_file_is_checked_alone(tmp_path: Path) -> None:
    write(tmp_path, tenants_good=ISSUE_BLOCK, tenants_bad="tenant: {pool: x, guaranteed: 3, elastic_cap: 2, grup: a}\n")
    good = load_tenant(tmp_path / "tenants" / "good.yaml")
    assert (good.name, good.text) == ("good", ISSUE_BLOCK)
    bad = tmp_path / "tenants" / "bad.yaml"
    assert problems(lambda: load_tenant(bad)) == [
        (
            f"{bad}:1: tenants.bad.tenant.grup: is not a known key; did you mean group? Known here: "
            "pool, group, guaranteed, borrowable, reserved, lending_limit, headroom, elastic_cap, hard_cap, "
            "weight, models, resources"
        ),
        (
            f"{bad}:1: tenants.bad.tenant.guaranteed: 3 gpu is more than elastic_cap (2 gpu); "
            "reserved ≤ guaranteed ≤ elastic_cap ≤ hard_cap"
        ),
    ]


def guarantees(sources: Sources) -> dict[str, int]:
    return {name: tenant.guaranteed for name, tenant in parse_sources(sources).policy.tenants.items()}


def test_an_applied_tenant_replaces_the_one_of_its_name(tmp_path: Path, edit: Edit) -> None:
    path = write(
        tmp_path, main=edit(end="include: [tenants/*.yaml, tenants/a.yaml]\n"), tenants_a="tenant: {guaranteed: 1}\n"
    )
    base = read_sources(path)
    assert guarantees(base) == {"support": 2000, "a": 1000}
    # It is in the main file, in a file of its own, or nowhere yet.
    inline = merge_tenant(base, "support", "tenant: {guaranteed: 0.5}\n")
    assert guarantees(inline) == {"support": 500, "a": 1000}
    included = merge_tenant(inline, "a", "tenant: {guaranteed: 0.25}\n", "elsewhere/a.yaml")
    assert guarantees(included) == {"support": 500, "a": 250}
    added = merge_tenant(included, "new", "tenant: {guaranteed: 0}\n")
    assert guarantees(added) == {"support": 500, "a": 250, "new": 0}
    # Applied again, it replaces itself.
    again = merge_tenant(added, "new", "tenant: {guaranteed: 1}\n", "main.yaml")
    assert guarantees(again) == {"support": 500, "a": 250, "new": 1000}
    assert len(again.files) == 4
    # What it came from is as it was.
    assert guarantees(base) == {"support": 2000, "a": 1000}


def test_an_error_in_an_applied_tenant_names_its_file(edit: Edit) -> None:
    base = Sources("c.yaml", {"c.yaml": edit("guaranteed: 2_gpu", "guaranteed: 2_gpu, reserved: 1_gpu")})
    applied = merge_tenant(base, "support", "tenant: {guaranteed: many}\n", "my/support.yaml")
    assert problems(lambda: parse_sources(applied)) == [
        (
            'my/support.yaml:1: tenants.support.tenant.guaranteed: "many" is not an amount of GPUs; '
            "write it like 2_gpu, 0.5 gpu or 500 milli_gpu"
        )
    ]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (ISSUE_BLOCK, True),
        ("queue: {max_wait: 1s}", True),
        ("apps: {a: }\nfoo: 1", True),
        ("pools: {}", False),
        ("tenant: {}\npools: {}", False),
        ("foo: 1", False),
        ("[]", False),
        ("a: [", False),
        ("", False),
    ],
)
def test_a_tenant_s_file_is_known_by_its_keys(text: str, answer: bool) -> None:
    assert is_tenant_text(text) is answer


def test_sources_from_elsewhere_are_whole_and_bounded(base: str) -> None:
    assert problems(lambda: parse_sources(Sources("c.yaml", {}))) == [
        "c.yaml: is the main file, and its text is not there"
    ]
    assert problems(lambda: parse_sources(Sources("c.yaml", {"c.yaml": base}, applied={"a": "x.yaml"}))) == [
        'x.yaml: is the file of tenant "a", and its text is not there'
    ]
    assert problems(lambda: parse_sources(Sources("c.yaml", {"c.yaml": base + "#" * FILE_BYTES_MAX}))) == [
        "c.yaml: is larger than 1024 KiB, which no configuration is"
    ]
    many = {f"t{n}.yaml": "{}" for n in range(1001)}
    assert problems(lambda: parse_sources(Sources("c.yaml", {"c.yaml": base, **many}))) == [
        "c.yaml: comes with 1002 files; allowed are 1001"
    ]
    few = {f"t{n}.yaml": "{}" for n in range(1000)}
    assert problems(lambda: parse_sources(Sources("c.yaml", {"c.yaml": base, **few}))) == [
        "c.yaml:11: tenants: there are 1001 tenants; allowed are 1000"
    ]
