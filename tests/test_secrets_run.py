"""Keys planted in the source, the mission, the environment and the settings: whole runs, and a search of every file they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_server import FakeServer, Recorded, error
from nightmill import demo
from runs import NIGHTMILL, run
from secret_samples import BARE, VALUES, letters, pem
from small_runs import small_run

SHOWN = [".nightmill/calls", ".nightmill/events.jsonl", ".nightmill/objects"]


def holding(root: Path, *secrets: str, but: tuple[str, ...] = ()) -> list[str]:
    """`path: secret` for every file below `root`, hidden ones too, that holds one in its text or name."""
    found = []
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        rel = path.relative_to(root).as_posix()
        data = path.read_bytes()
        found += [
            f"{rel}: {s}" for s in secrets if rel not in but and (s in rel or s.encode() in data or json.dumps(s)[1:-1].encode() in data)
        ]
    return found


@pytest.mark.slow
def test_a_whole_run_leaves_no_planted_key_anywhere_in_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = demo.prepare(tmp_path, None)
    (root / "v1").rename(tmp_path / "till")
    (root / "run.yaml").write_text((root / "run.yaml").read_text().replace('source: "v1"', f'source: "{tmp_path / "till"}"'))
    in_environment = {"TILL_TOKEN": letters(24), "LEDGER_PASSWORD": f"né-{letters(14)}\"'"}
    for name, value in in_environment.items():
        monkeypatch.setenv(name, value)
    code, readme = tmp_path / "till" / "tearoom" / "money.py", tmp_path / "till" / "README.md"
    planted = [v for kind, v in BARE.items() if kind != "aws as documented"]
    key = pem()
    keys = "".join(f"_K{n} = {value!r}\n" for n, value in enumerate([*planted, *in_environment.values()]))
    code.write_text(code.read_text() + f'{keys}_PEM = """{key}"""\n_PASSWORD = "{VALUES["a password of many kinds"]}"\n')
    readme.write_text(f"{readme.read_text()}\n    curl https://till:{letters(9)}x@till.local -H 'token: {in_environment['TILL_TOKEN']}'\n")
    url_password = readme.read_text().rpartition("till:")[2].partition("@")[0]
    mission = (root / "mission.md").read_text() + f"\nLog in with {BARE['github']}, or {VALUES['a password of many kinds']}.\n"
    (root / "mission.md").write_text(mission.replace("or tR7", "or password = 'tR7").replace("!q.", "!q'."))
    mission = (root / "mission.md").read_text()
    done = run(root)
    assert done.code == 0, done.out + done.err
    assert "Traceback" not in done.out + done.err
    secrets = [*planted, *in_environment.values(), VALUES["a password of many kinds"], *key.splitlines()[1:-1], url_password]
    assert holding(root, *secrets, but=("mission.md",)) == []
    assert (root / "mission.md").read_text() == mission, "the person's own file is not touched"
    assert all(holding(root / place if (root / place).is_dir() else root, "REDACTED_SECRET_") for place in SHOWN)
    assert not [secret for secret in secrets if secret in done.out + done.err]
    told = (root / "deviations.md").read_text()
    assert "tearoom/money.py" in told and "replaced by REDACTED_SECRET_…" in told
    (tmp_path / "till").rename(tmp_path / "gone")
    again = [(e.stage, e.why) for e in run(root).events if e.kind == "stage_started"]
    assert again == [], "nothing is made again when the source is not there any more"


@pytest.mark.parametrize("where", ["api_key_env", "api_key_file"])
def test_the_key_of_a_provider_that_repeats_it_in_its_errors_is_in_no_file_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    key = letters(22)
    (tmp_path / "key").write_text(f"{key}\n")
    monkeypatch.setenv("MODEL_ACCESS", key)
    named = {"api_key_env": "MODEL_ACCESS", "api_key_file": str(tmp_path / "key")}[where]

    def refuse(request: Recorded) -> object:
        return error(400, f"you sent {request.headers['authorization']} twice: {key!r} {json.dumps(key)}", "invalid_request_error")

    with FakeServer(refuse, api_key=key) as server:  # type: ignore[arg-type]
        providers = {"local": {"url": server.url, where: named, "idle_s": 5, "first_token_s": 5}}
        root = small_run(tmp_path / "run", source={"main.py": f"KEY = '{key}'\n\n\ndef main():\n    return 1\n"}, providers=providers)
        (root / "v1").rename(tmp_path / "old")
        config = json.loads((root / "run.yaml").read_text()) | {
            "source": str(tmp_path / "old"),
            "models": {"default": {"provider": "local", "model": "m"}},
        }
        (root / "run.yaml").write_text(json.dumps(config))
        done = run(root, "run", "contract:1", command=NIGHTMILL)
        assert server.calls, done.out + done.err
        assert all(call.headers["authorization"] == f"Bearer {key}" for call in server.calls)
        assert not [call for call in server.calls if key in call.prompt], "the prompt shows the source without it"
    assert done.code != 0 and "you sent" in done.out + done.err + (root / ".nightmill" / "events.jsonl").read_text()
    assert key not in done.out + done.err
    assert holding(root, key) == []


def test_a_key_written_where_its_name_belongs_is_not_repeated(tmp_path: Path) -> None:
    key = BARE["openai project"]
    providers = {"local": {"url": "http://127.0.0.1:1/v1", "api_key_env": key}}
    root = small_run(tmp_path / "run", providers=providers, models={"default": {"provider": "local", "model": "m"}})
    done = run(root, "run", command=NIGHTMILL)
    assert done.code == 78 and key not in done.out + done.err
    assert holding(root, key, but=("run.yaml",)) == []
