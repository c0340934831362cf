"""What is taken for a secret and what is not; that nothing planted survives, and that nothing else changes."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightmill.calls.prompts import render
from nightmill.errors import ConfigError
from nightmill.redact import SHAPES_ONLY, Redactor, from_environment, known, replaced
from nightmill.run.events import EventLog, Finding, GateRan, Note
from nightmill.run.journal import Journal
from nightmill.run.ledger import Ledger, Objects
from nightmill.run.snapshot import scan
from nightmill.secret_shapes import PLACEHOLDER, placeholder
from run_story import record, story
from secret_samples import BARE, HARMLESS, HEX, PLACES, VALUES, letters, pem
from small_runs import opened, scratch, small_run

# -- shapes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "around", ["{}", "x = '{}'\n", "see {}.", "a\n{}\nb", "<{}>", "?key={}&x=1", 'x = "KEY:\\n{}\\n"', "({},)", "user:{}@host"]
)
@pytest.mark.parametrize("kind", BARE)
def test_a_key_with_a_mark_of_its_own_is_replaced_wherever_it_stands(kind: str, around: str) -> None:
    text = around.format(BARE[kind])
    assert SHAPES_ONLY(text) == text.replace(BARE[kind], placeholder(BARE[kind]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", VALUES)
def test_a_long_random_value_is_replaced_where_a_name_gives_it_away(kind: str, place: str) -> None:
    if place == "header" and not VALUES[kind].replace("-", "").isalnum():
        pytest.skip("a header holds only some characters")
    text = PLACES[place].format(VALUES[kind])
    assert SHAPES_ONLY(text) == text.replace(VALUES[kind], placeholder(VALUES[kind]))


@pytest.mark.parametrize("text", ["db_password: {}\n", "export API_TOKEN={}\n", "  secret = {}  \r\n", "# token={}"])
def test_an_unquoted_value_alone_at_the_end_of_a_line_is_replaced(text: str) -> None:
    for value in (letters(32), letters(40, HEX)):
        assert SHAPES_ONLY(text.format(value)) == text.format(placeholder(value))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_secret_is_left_alone(text: str) -> None:
    assert SHAPES_ONLY(text) == text


def test_the_password_in_a_url_is_replaced_and_the_rest_of_it_stays() -> None:
    value = "hunter" + "2!"
    assert SHAPES_ONLY(f"amqp://app:{value}@mq.local:5672/x") == f"amqp://app:{placeholder(value)}@mq.local:5672/x"
    assert SHAPES_ONLY(f"redis://:{value}@cache") == f"redis://:{placeholder(value)}@cache"


def test_a_slack_hook_loses_its_path() -> None:
    path = f"T{letters(8, HEX)}/B{letters(8, HEX)}/{letters(24)}"
    assert SHAPES_ONLY(f"https://hooks.slack.com/services/{path}") == f"https://hooks.slack.com/services/{placeholder(path)}"


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_is_blanked_line_by_line(kind: str) -> None:
    key = pem(kind)
    text = f"before\n{key}after\n"
    redacted = SHAPES_ONLY(text)
    assert not [line for line in key.splitlines() if line in redacted]
    assert redacted.count("\n") == text.count("\n") and redacted.startswith("before\nREDACTED_SECRET_") and redacted.endswith("\nafter\n")
    assert replaced(redacted) == 1


LAYOUTS = {
    "one literal": lambda key: f"KEY = '''{key}'''\nx = 1\n",
    "escaped": lambda key: f"KEY = {json.dumps(key)}\nx = 1\n",
    "a literal per line": lambda key: (
        "KEY = (\n" + "".join(f"    {json.dumps(line + chr(10))}\n" for line in key.splitlines()) + ")\nx = 1\n"
    ),
    "added up": lambda key: "KEY = (" + " +\n".join(f" '{line}\\n'" for line in key.splitlines()) + ")\nx = 1\n",
    "indented": lambda key: "KEY = '''\n" + "".join(f"      {line}\n" for line in key.splitlines()) + "'''\nx = 1\n",
    "a list": lambda key: f"KEY = {key.splitlines()}\nx = 1\n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_program_with_a_private_key_still_parses_and_keeps_its_lines(layout: str) -> None:
    key = pem()
    text = LAYOUTS[layout](key)
    ast.parse(redacted := SHAPES_ONLY(text))
    assert not [line for line in key.splitlines() if line in redacted]
    assert redacted.count("\n") == text.count("\n") and redacted.endswith("x = 1\n")


def test_a_key_without_its_end_is_blanked_too() -> None:
    key = pem(ends=False)
    assert not [line for line in key.splitlines()[:-2] if line in SHAPES_ONLY(f"{key}\ndef f(): pass\n")]
    assert SHAPES_ONLY(f"{key}\ndef f(): pass\n").endswith("def f(): pass\n")


def test_the_headers_of_an_encrypted_key_do_not_save_it() -> None:
    lines = pem().splitlines()
    key = "\n".join([lines[0], "Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-128-CBC,{letters(32, HEX).upper()}", "", *lines[1:]])
    assert not [line for line in lines[1:] if line in SHAPES_ONLY(key)]


# -- placeholders -----------------------------------------------------------------------------------


def test_the_same_value_has_the_same_placeholder_in_every_process() -> None:
    value = letters(30)
    code = f"from nightmill.secret_shapes import placeholder; print(placeholder({value!r}))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told == placeholder(value) and told.isidentifier() and told.isascii() and PLACEHOLDER.fullmatch(told)
    assert placeholder(value + "x") != told


def test_a_placeholder_does_not_tell_which_weak_password_it_stands_for() -> None:
    words = [f"{word}{n}!" for word in ("summer", "winter", "dragon", "letmein", "qwerty") for n in range(20_000)]
    wanted = placeholder("dragon" + "777!")
    assert len([word for word in words if placeholder(word) == wanted]) > 5


# -- properties -------------------------------------------------------------------------------------

SNIPPETS = [*BARE.values(), *(p.format(v) for p in PLACES.values() for v in VALUES.values()), pem(), pem(ends=False), *HARMLESS]
SCRAPS = [
    "password",
    "token = ",
    "'",
    '"',
    "\\n",
    "\n",
    " ",
    "://",
    "a:b@",
    "sk-",
    "eyJ",
    ".",
    "-----BEGIN PRIVATE KEY-----",
    "ä",
    "REDACTED_SECRET_abc123",
    "=",
]
MIXED = st.lists(st.one_of(st.sampled_from(SNIPPETS), st.sampled_from(SCRAPS), st.text(max_size=8)), max_size=12).map("".join)
TWO_LINES = "two-lines-" + letters(9) + "\nsecond-" + letters(12)
KNOWN = Redactor(frozenset({'quo"te\\d-value', "käse-und-brot-9", TWO_LINES}))


@settings(max_examples=300, deadline=None)
@given(text=MIXED)
def test_redacting_twice_changes_nothing_more_and_lines_stay(text: str) -> None:
    once = SHAPES_ONLY(text)
    assert SHAPES_ONLY(once) == once
    assert once.count("\n") == text.count("\n")


@settings(max_examples=200, deadline=None)
@given(before=MIXED, after=MIXED, kind=st.sampled_from(sorted(BARE)), gap=st.sampled_from([" ", "\n", "'", '"', "(", ";"]))
def test_no_planted_key_survives_whatever_stands_around_it(before: str, after: str, kind: str, gap: str) -> None:
    planted = f"{gap}{BARE[kind]}{gap}"
    assert planted not in SHAPES_ONLY(before + planted + after)


@settings(max_examples=200, deadline=None)
@given(before=st.text(max_size=30), after=st.text(max_size=30), value=st.sampled_from(sorted(KNOWN.values)))
def test_no_known_value_survives_in_any_text_nor_in_json(before: str, after: str, value: str) -> None:
    text = before + value + after
    assert value not in KNOWN.known(text)
    assert value.encode() not in KNOWN.known_bytes(text.encode("utf-8", "replace"))
    assert value not in json.loads(KNOWN.known(json.dumps([value])))[0]


@given(text=st.text(alphabet="abc_ =:'\"\n(){}.,/-0123456789", max_size=200))
def test_text_without_secrets_is_left_as_it_is(text: str) -> None:
    assert SHAPES_ONLY(text) == text


@settings(max_examples=200, deadline=None)
@given(data=st.data(), text=st.lists(st.sampled_from([*KNOWN.values, "two-lines-", "käse-und", "x", "\n"]), max_size=6).map("".join))
def test_a_text_in_pieces_is_redacted_like_the_whole(data: st.DataObject, text: str) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    trickle = (few := Redactor(KNOWN.values - {TWO_LINES})).trickle()
    shown = [trickle.add(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(shown) + trickle.end() == few.known(text)


def test_pieces_never_show_a_line_of_a_value_with_several() -> None:
    trickle = KNOWN.trickle()
    shown = "".join(trickle.add(piece) for piece in TWO_LINES) + trickle.end()
    assert not [line for line in TWO_LINES.splitlines() if line in shown]


def test_our_own_code_is_left_alone() -> None:
    root = Path(__file__).parents[1]
    texts = {
        path: path.read_text()
        for folder in ("tools", "stages", "templates", "skills")
        for path in (root / folder).rglob("*.*")
        if path.suffix in (".py", ".j2", ".md")
    }
    assert len(texts) > 80
    assert [path for path, text in texts.items() if SHAPES_ONLY(text) != text] == []


EVIL = [
    *(
        "eyJ",
        "eyJaaaaaaaaaa.",
        "sk-a1",
        "://a:",
        "a:b@",
        "password",
        "password='",
        "token: str = '",
        "secret\n=\n",
        "token                ",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n" + 24 * "A" + "\n", "PRIVATE KEY", "\\n\\", "bearer "),
    *("AKIA", "hooks.slack.com/services/", "A1b2", "pass'] , ", "password=", "password=a1B2c3D4e5F6g7H8i9"),
]


@pytest.mark.slow
@pytest.mark.parametrize("text", EVIL)
def test_a_hostile_megabyte_takes_seconds_at_most(text: str) -> None:
    began = time.process_time()
    SHAPES_ONLY((text * (1_000_000 // len(text) + 1))[:1_000_000])
    assert time.process_time() - began < 5, "it took about half a second when it was written"


# -- known values -----------------------------------------------------------------------------------


def test_the_environment_gives_what_is_named_like_a_secret() -> None:
    secrets = {
        name: letters(12)
        for name in ("API_KEY", "GH_TOKEN", "my_secret", "DB_PASSWORD", "MYSQL_PASSWD", "AWS_SECRET_ACCESS_KEY", "CREDENTIALS")
    }
    others = {name: letters(12) for name in ("PATH", "KEYBOARD", "SSH_AUTH_SOCK", "MONKEY", "TOKENIZER", "PWD", "SECRETARY")}
    assert from_environment(secrets | others) == frozenset(secrets.values())


def test_what_would_hit_ordinary_text_is_no_known_value() -> None:
    words = {
        "A_KEY": "short1",
        "B_KEY": "development",
        "C_TOKEN": "1234567890",
        "D_SECRET": "/run/secrets/db",
        "E_TOKEN": "",
        "F_KEY": "https://vault.local/x",
    }
    assert not from_environment(words | {"G_KEY": "~/keys/id", "H_KEY": placeholder("some value of mine")})
    assert list(known([None, "", "EMPTY", "no-key!"])) == []


def test_the_password_of_a_url_in_the_environment_is_known() -> None:
    value = letters(10)
    assert from_environment({"DATABASE_URL": f"postgres://app:{value}@db/x"}) == {value}


def test_known_values_are_found_as_json_and_urls_write_them_and_the_longer_one_first() -> None:
    redactor = Redactor(frozenset({"abcd/efgh+1", "abcd/efgh+1234"}))
    assert redactor.known("x?key=abcd%2Fefgh%2B1234") == "x?key=" + placeholder("abcd/efgh+1234")
    assert redactor.known("x?key=abcd/efgh%2B1234") == "x?key=" + placeholder("abcd/efgh+1234")
    assert redactor.known("YWJjZC9lZmdoKzEyMzQ=") == placeholder("abcd/efgh+1234") + "="
    assert redactor.known("abcd/efgh+1234 abcd/efgh+1") == f"{placeholder('abcd/efgh+1234')} {placeholder('abcd/efgh+1')}"
    assert repr(redactor) == "Redactor(2 values)"


# -- where it is applied ----------------------------------------------------------------------------

VALUE = 'käse"-' + letters(14)
MINE = Redactor(frozenset({VALUE}))


def test_events_are_written_and_told_without_secrets(tmp_path: Path) -> None:
    log, told = EventLog(tmp_path / "events.jsonl", MINE), []
    log.subscribe(told.append)
    log.emit(Finding(stage="s", source="x", where=VALUE, text=f"use {BARE['github']} and {VALUE}"))
    log.emit(GateRan(stage="s", attempt=1, record=record("red", reason=f"assert '{VALUE}' == 1\n{pem()}")))
    data = (tmp_path / "events.jsonl").read_text()
    assert [json.loads(line)["kind"] for line in data.splitlines()] == ["finding", "gate_ran"]
    assert not [s for s in (VALUE, json.dumps(VALUE)[1:-1], BARE["github"], *pem().splitlines()[1:-1]) if s in data]
    assert list(log) == told and placeholder(VALUE) in data


def test_events_without_secrets_are_written_as_they_are(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", MINE)
    for event in story():
        log.emit(event)
    assert [e.model_dump(exclude={"up"}) for e in log] == [e.model_dump(exclude={"up"}) for e in story()]


def test_threads_may_emit_secrets_at_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", MINE)
    threads = [threading.Thread(target=lambda: [log.emit(Note(text=VALUE * 3)) for _ in range(40)]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [e.text for e in log] == [placeholder(VALUE) * 3] * 160


def test_a_publication_holds_no_known_value_and_is_not_taken_for_an_edit(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", MINE)
    ledger = Ledger(tmp_path, journal, Objects(tmp_path / "objects"), MINE)
    looks = f"KEY = '{BARE['github']}'\n"
    ledger.publish("s", ["v2/"], {f"v2/{VALUE}.py": f"x = '{VALUE}'\n".encode(), "v2/b.py": looks.encode()}, None)
    assert ledger.edits(["v2/"], None) == []
    assert (tmp_path / "v2" / "b.py").read_text() == looks, "what a model wrote is not changed for its looks"
    assert holding(tmp_path, VALUE) == []
    assert (tmp_path / "v2" / f"{placeholder(VALUE)}.py").read_text() == f"x = '{placeholder(VALUE)}'\n"


def test_the_journal_names_no_secret(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", MINE)
    journal.append([("rescued", "s", f"v2/{VALUE}/{BARE['npm']}.py", "ab" * 32)])
    assert [e.path for e in Journal(tmp_path / "journal.jsonl")] == [f"v2/{placeholder(VALUE)}/{placeholder(BARE['npm'])}.py"]
    assert holding(tmp_path, VALUE) == holding(tmp_path, BARE["npm"]) == []


def test_prompts_hold_no_secret_in_any_section() -> None:
    texts = {
        "skill": "S",
        "format": "F",
        "feedback": f"not {VALUE}",
        "mission": f"Use {BARE['slack']}.",
        "source": pem(),
        "code": f"token = '{VALUES['hex']}'",
    }
    shown = "\n".join(s.text for s in render("final_review.md.j2", texts, MINE))
    assert not [s for s in (VALUE, BARE["slack"], VALUES["hex"], *pem().splitlines()[1:-1]) if s in shown]
    assert {placeholder(s) for s in (VALUE, BARE["slack"], VALUES["hex"])} <= set(PLACEHOLDER.findall(shown))


def test_the_snapshot_is_the_redacted_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"A = '{BARE['aws']}'\nB = '{VALUE}'\n")
    (tmp_path / "b.py").write_text("x = 1\r\n", newline="")
    (tmp_path / f"{BARE['github']}.txt").write_text("x")
    found = scan(tmp_path, redactor=MINE)
    assert sorted(found.files) == ["a.py", "b.py"] and found.redacted == {"a.py": 2}
    assert found.skipped["a name that holds a secret"] == [f"{placeholder(BARE['github'])}.txt"]
    (tmp_path / "a.py").write_text(f"A = '{placeholder(BARE['aws'])}'\nB = '{placeholder(VALUE)}'\n")
    assert scan(tmp_path).files == found.files, "hashes are those of the redacted text"


def test_a_run_knows_the_keys_of_its_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [letters(20), letters(20), letters(20)]
    (tmp_path / "key").write_text(keys[1] + "\n")
    monkeypatch.setenv("MODELS_ACCESS", keys[0])
    monkeypatch.setenv("UNRELATED_TOKEN", keys[2])
    url = "http://127.0.0.1:1/v1"
    providers = {
        "a": {"url": url, "api_key_env": "MODELS_ACCESS"},
        "b": {"url": url, "api_key_file": str(tmp_path / "key")},
        "c": {"url": url, "api_key_env": "MISSING"},
    }
    session = opened(small_run(tmp_path / "run", providers=providers, models={"default": {"provider": "a", "model": "m"}}))
    assert session.run.redactor.values >= set(keys)
    (tmp_path / "run" / "run.yaml").write_text("nonsense: [")
    broken = opened(tmp_path / "run")
    assert keys[2] in broken.run.redactor.values
    with pytest.raises(ConfigError):
        broken.run.config  # noqa: B018


def test_stamps_agree_whether_or_not_the_source_is_still_there() -> None:
    from nightmill.graph.execute import execute
    from nightmill.graph.facts import check
    from nightmill.paths import load_dodo

    with scratch() as folder:
        root = small_run(folder / "run", source={"main.py": f"KEY = '{BARE['openai']}'\n\n\ndef main():\n    return KEY\n"})
        execute(opened(root), load_dodo().intake)
        assert check(opened(root), load_dodo().intake).state == "fresh"
        (root / "v1").rename(folder / "elsewhere")
        assert check(opened(root), load_dodo().intake).state == "fresh"
        assert holding(root, BARE["openai"]) == []
        assert "`main.py` (5 lines, 1 secret replaced)" in (root / "source.md").read_text()
        (finding,) = [e for e in opened(root).run.events if e.kind == "finding"]
        assert finding.where == "main.py" and "1 secret of the old program" in finding.text and "put it back" in finding.text


def test_the_mission_is_the_persons_but_no_stage_reads_a_secret_in_it(tmp_path: Path) -> None:
    from nightmill.graph.context import Ctx
    from nightmill.paths import load_dodo

    root = small_run(tmp_path / "run")
    (root / "mission.md").write_text(text := f"Log in with {BARE['gitlab']}.\n")
    assert Ctx(opened(root), load_dodo().contract_review.bind(needs=("mission.md",))).read("mission.md") == SHAPES_ONLY(text) != text
    assert (root / "mission.md").read_text() == text


def holding(root: Path, secret: str) -> list[Path]:
    """Files below `root`, hidden ones too, that hold a secret in their text or name."""
    return [p for p in root.rglob("*") if secret in p.name or (p.is_file() and secret.encode() in p.read_bytes())]
