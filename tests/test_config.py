"""run.yaml: what is refused, and that the refusal names the place and the near miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightmill import config
from nightmill.errors import ConfigError
from nightmill.scaffold import Answering, new_run

GOOD = "source: ../v1\nproviders: {local: {url: http://127.0.0.1:8080/v1}}\nmodels: {default: {provider: local, model: m}}\n"
LISTED = GOOD.replace("{default:", "{tester: [{provider: local, model: a}, {provider: local, model: b}], default:")


def load(tmp_path: Path, text: str | bytes) -> config.RunConfig:
    path = tmp_path / "run.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return config.load(path)


def test_the_shortest_run_yaml_has_three_keys(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD)
    assert loaded.pipeline == "rewrite"
    assert loaded.candidates("reviewer")[0].model == "m"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "buget: {}\n", "unknown key `buget`: did you mean `budgets`?"),
        (GOOD + "build: {max_iteration: 3}\n", "unknown key `build.max_iteration`: did you mean `max_iterations`?"),
        (GOOD.replace("model: m", "modle: m"), "did you mean `model`?"),
        (GOOD.replace("url:", "ulr:"), "did you mean `url`?"),
        (GOOD.replace("provider: local", "provider: locla"), "no provider `locla`: did you mean `local`?"),
        (GOOD.replace("{default:", "{implementor: {provider: local, model: x}, default:"), "unknown role: did you mean `implementer`?"),
        (GOOD.replace("{default:", "{reviewer:"), "needs a `default` entry"),
        (GOOD.replace("source: ../v1\n", ""), "`source` is missing"),
        (GOOD + "build: {max_iterations: many}\n", "build.max_iterations"),
        (GOOD + "build: {max_iterations: 0}\n", "build.max_iterations"),
        (GOOD + "budgets: [1]\n", "budgets"),
        (GOOD + "gates: {sandbox: none}\n", "gates.sandbox"),
        (GOOD + "budgets: {until: '25:00'}\n", "budgets.until: should be a local time of day such as \"07:00\" (got '25:00')"),
        (GOOD + "budgets: {until: 420}\n", 'budgets.until: should be a local time of day such as "07:00"'),
        (GOOD + "budgets: {calls: true}\n", "budgets.calls: no setting is a yes or no"),
        (GOOD.replace("model: m", "model: m, context: 8k"), "models.default.context: should be a number of tokens, above 0, or"),
        (GOOD.replace("{provider: local, model: m}", "m"), "models.default: should have the lines `provider:` and `model:`, or be a list"),
        (GOOD.replace("{provider: local, model: m}", "[]"), "models.default: should not be empty"),
        (LISTED.replace("model: b", "modle: b"), "unknown key `models.tester[1].modle`: did you mean `model`?"),
        (LISTED.replace("model: a", "model: a, price: {inptu: 1}"), "unknown key `models.tester[0].price.inptu`: did you mean `input`?"),
        (LISTED.replace("{provider: local, model: b}", "b"), "models.tester[1]: should have the lines `provider:` and `model:`"),
        (LISTED.replace("local, model: b", "locla, model: b"), "models.tester[1].provider: no provider `locla`"),
        (LISTED.replace("model: b", "model: a"), "models.tester[1]: the same as [0]: name each model once"),
        ("source: [unclosed\n", "not valid YAML"),
        ("a: b: c\n", "line 1: not valid YAML"),
        ("just text\n", "expected `key: value` lines"),
        ("", "expected `key: value` lines"),
        (b"\xff\xfe\x00", "not valid YAML"),
        ("source: a\nsource: b\n", "not valid YAML"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_a_bad_run_yaml_is_refused_in_one_line_that_names_it(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 78


def test_a_section_whose_lines_are_all_commented_out_is_as_good_as_none(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD + "budgets:\n  # calls: 3\nbuild:\n") == load(tmp_path, GOOD)


def test_the_commented_run_yaml_of_a_new_run_loads_and_shows_every_default(tmp_path: Path) -> None:
    new_run(tmp_path / "r", "../v1", Answering(model="m"))
    loaded = config.load(tmp_path / "r" / "run.yaml")
    shortest = load(tmp_path, GOOD)
    assert loaded.build == shortest.build
    assert loaded.gates == shortest.gates
    assert loaded.budgets == shortest.budgets
    assert loaded.contract == shortest.contract


def test_every_key_of_run_yaml_stands_in_the_commented_one(tmp_path: Path) -> None:
    new_run(tmp_path / "r", "../v1", Answering(model="m"))
    text = (tmp_path / "r" / "run.yaml").read_text()
    sections = [config.RunConfig, config.OpenAIProvider, config.ModelConfig, config.Budgets, config.Contract, config.Build, config.Gates]
    missing = [key for section in sections for key in section.model_fields if f"{key}:" not in text and key != "kind"]
    assert missing == []


def test_a_missing_key_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NM_KEY", raising=False)
    provider = config.OpenAIProvider(url="http://x", api_key_env="NM_KEY")
    with pytest.raises(ConfigError, match="NM_KEY"):
        config.api_key(provider, tmp_path)


def test_an_option_that_does_not_exist_is_a_bug_of_the_stage(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        load(tmp_path, GOOD).option("build.max_iteration")
