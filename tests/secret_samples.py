"""Key-like texts, put together when the tests run: no file of the repository holds one."""

from __future__ import annotations

import base64
import random
import string

_dice = random.Random(7)


def letters(n: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Random, with a digit, a small letter and a capital among them where the alphabet has some."""
    sure = [
        next(c for c in kind if c in alphabet)
        for kind in (string.digits, string.ascii_lowercase, string.ascii_uppercase)
        if set(kind) & set(alphabet)
    ]
    text = [*sure, *_dice.choices(alphabet, k=n - len(sure))]
    _dice.shuffle(text)
    return "".join(text)


HEX = "0123456789abcdef"
URLSAFE = string.ascii_letters + string.digits + "-_"
UPPER = string.ascii_uppercase + string.digits

BARE = {
    "aws": "AK" + "IA" + letters(16, UPPER),
    "aws temporary": "AS" + "IA" + letters(16, UPPER),
    "aws as documented": "AK" + "IA" + "IOSFODNN7" + "EXAMPLE",
    "github": "gh" + "p_" + letters(36),
    "github server": "gh" + "s_" + letters(36),
    "github fine-grained": "github" + "_pat_" + letters(22) + "_" + letters(59),
    "gitlab": "gl" + "pat-" + letters(20, URLSAFE),
    "slack": "xox" + "b-" + letters(12, string.digits) + "-" + letters(24),
    "openai": "s" + "k-" + letters(48),
    "openai project": "s" + "k-proj-" + letters(74, URLSAFE),
    "anthropic": "s" + "k-ant-api03-" + letters(93, URLSAFE) + "AA",
    "openrouter": "s" + "k-or-v1-" + letters(64, HEX),
    "stripe": "s" + "k_live_" + letters(24),
    "google": "AI" + "za" + letters(35, URLSAFE),
    "hugging face": "h" + "f_" + letters(34),
    "npm": "np" + "m_" + letters(36),
    "pypi": "py" + "pi-AgEIcHlwaS5vcmc" + letters(130, URLSAFE),
    "jwt": ".".join(("ey" + "J" + letters(33, URLSAFE), "ey" + "J" + letters(70, URLSAFE), letters(43, URLSAFE))),
}
"""Name → a key that is known by itself."""

VALUES = {
    "a password of many kinds": "tR7#" + letters(14) + "!q",
    "hex": letters(40, HEX),
    "base64": letters(40, string.ascii_letters + string.digits + "+/"),
    "small letters and digits": letters(32, string.ascii_lowercase + string.digits),
    "url-safe": letters(43, URLSAFE),
    "uuid": "-".join(letters(n, HEX) for n in (8, 4, 4, 4, 12)),
}
"""Name → a value that only its surroundings give away."""

PLACES = {
    "python": "PASSWORD = '{}'\n",
    "python, typed": 'API_KEY: str = "{}"\n',
    "dictionary": 'CONFIG = {{"client_secret": "{}", "x": 1}}\n',
    "argument": 'connect(host, password="{}")\n',
    "environment": 'os.environ["GH_TOKEN"] = "{}"\n',
    "default": 'os.environ.get("DB_PASSWORD", "{}")\n',
    "javascript": "const authToken = `{}`;\n",
    "go": 'apiKey := "{}"\n',
    "ruby": ":secret_token => '{}'\n",
    "json in a string": 'x = "{{\\"api_key\\": \\"{}\\"}}"\n',
    "toml": 'private-key = "{}"\n',
    "comparison": 'if token == "{}":\n',
    "header": 'h = {{"Authorization": "Bearer {}"}}\n',
}


def pem(kind: str = "RSA ", lines: int = 12, ends: bool = True) -> str:
    body = [letters(64, string.ascii_letters + string.digits + "+/") for _ in range(lines)] + [letters(9) + "w=="]
    marks = f"-----BEGIN {kind}PRIV" + "ATE KEY-----", f"-----END {kind}PRIV" + "ATE KEY-----"
    return "\n".join([marks[0], *body, marks[1] if ends else ""]) + "\n"


IMAGE = base64.b64encode(random.Random(3).randbytes(600)).decode()
HARMLESS = [
    "sha256 = '" + letters(64, HEX) + "'\n",
    "commit " + letters(40, HEX) + "\n",
    "id = '" + VALUES["uuid"] + "'\n",
    "PASSWORD_HASH = '" + letters(64, HEX) + "'\n",
    f"<img src='data:image/png;base64,{IMAGE}'>\n",
    "password = 'password'\n",
    "password = 'correct-horse-battery-staple'\n",
    "token = 'your-api-key-goes-here-please'\n",
    "SECRET = 'abcdefghijklmnopqrstuvwxyz'\n",
    "API_KEY = '00000000-0000-0000-0000-000000000000'\n",
    "api_key = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'\n",
    "token_url = 'https://login.example.com/oauth2/v2.0/token'\n",
    "secret = 'projects/my-project/secrets/database-password/versions/latest'\n",
    'password = "{user}:{password}@{host}:{port}/x1"\n',
    'token = f"{prefix}-{uuid4()}-{int(now)}"\n',
    "password = get_password_from_the_vault(name, version=12)\n",
    "api_key: ConfigurationApiKeyProvider2\n",
    'token: Literal["bearer_token_authentication_v2"] = x\n',
    'SECRET_KEY = os.environ["DJANGO_SECRET_KEY_2024"]\n',
    "tokens = tokenize(text)[0:128]\npassword_field_label_for_user = 1\n",
    "url = 'postgres://user:password@localhost/db'\n",
    "url = 'postgres://postgres:postgres@localhost/db'\n",
    "url = f'postgres://{user}:{password}@{host}/db'\n",
    "url = 'https://example.com:8080/a@b'\n",
    ".sk-cube-grid-loading-animation-2-container-x { color: red }\n",
    "task-management-system-for-large-teams-v2-final = 1\n",
    "AKIA and ASIA are prefixes; so are ghp_ and sk- and xoxb-.\n",
    "x = '" + "MA" + "AK" + "IA" + letters(18, UPPER) + "'\n",
    'if line.startswith("-----BEGIN PRIV' + 'ATE KEY-----"):\n    self.collect_private_key_lines(line)\n'
    '    return line.endswith("-----END PRIV' + 'ATE KEY-----")\n',
    "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n-----END PUBLIC KEY-----\n",
    "eyJhbGciOiJIUzI1NiJ9 alone is a header, and v1.2.3 a version\n",
]
