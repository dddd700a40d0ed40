"""Passwords, tokens and keys that only their name shows, and what stands in their place in code."""

import pytest

from tests.pipeline.stages.pii.test_kinds import scrubbed

HEX = "9ae558b7723348669cafee46e63d8216"
TOKEN = "my7LyIWOBRQwH2o7huxHtF1lFGtKAoOaacnoA2u"

GOES = {
    "in the environment of a program": {
        "DB_PASSWORD=cPuQQX4BxRfQ\nX=1": "DB_PASSWORD=[SECRET]\nX=1",
        f"export CLOUDFLARE_API_TOKEN={TOKEN}": "export CLOUDFLARE_API_TOKEN=[SECRET]",
        f"JWT_SECRET={TOKEN}; SECRET_KEY={TOKEN}": "JWT_SECRET=[SECRET]; SECRET_KEY=[SECRET]",
        "PGPASSWORD=Pna5Y7UBUiQ psql -h db": "PGPASSWORD=[SECRET] psql -h db",
        f"ALGOLIA_ADMIN_KEY={HEX}": "ALGOLIA_ADMIN_KEY=[SECRET]",
    },
    "in code and settings": {
        "password = 'BAMJ4oNKwaaW!'": "password = '[SECRET]'",
        '"password": "88zpAlNeDDject",': '"password": "[SECRET]",',
        '{\\"password\\": \\"88zpAlNeDDject\\"}': '{\\"password\\": \\"[SECRET]\\"}',
        "'password' => 'x9Yz77qPk',": "'password' => '[SECRET]',",
        'os.environ["DB_PASSWORD"] = "Sommer2024"': 'os.environ["DB_PASSWORD"] = "[SECRET]"',
        "password: W5p5QMKUvcWvJU\nuser: ann": "password: [SECRET]\nuser: ann",
        f"secretKey: `{TOKEN}`": "secretKey: `[SECRET]`",
        "//registry.npmjs.org/:_authToken=c2fb441e-2396-4504-a5fa-7a89fc5b3e24": (
            "//registry.npmjs.org/:_authToken=[SECRET]"
        ),
        f"https://x.example/c?se=2026-01-01&sig={TOKEN}%3D": "https://x.example/c?se=2026-01-01&sig=[SECRET]",
    },
    "in mail of several languages": {
        "Password: Sommer2024": "Password: [SECRET]",
        "Passwort: Xy12abZZ\nGruß": "Passwort: [SECRET]\nGruß",
        "mot de passe : k3Tz!9fr": "mot de passe : [SECRET]",
        "contraseña: Verano2024\n": "contraseña: [SECRET]\n",
        "Пароль: qW3rTy77": "Пароль: [SECRET]",
        "密码: Ab12Cd34": "密码: [SECRET]",
    },
    "tokens of more issuers": {
        f"https://discord.com/api/webhooks/633588815959452209/X9eR-_{TOKEN}": "https://[SECRET]",
        "vercel_blob_rw_sAlcoK7uVQO5eBlc_IgDpgIPp5LYqxInOIrFLrLdrau0HNt": "[SECRET]",
        "api_org_" + "aBcDeFgHiJ" * 3 + "kLmN": "[SECRET]",
        "cio" + "Ab3Cd4Ef" * 4: "[SECRET]",
    },
}

STAYS = {
    "what takes a password from elsewhere": [
        "password = getpass.getpass()",
        "password = config2.password1x",
        'password = input("Password: ")',
        "password = sha256(text1234)",
        "token = tokenizer2.next_token1()",
        "token: ${{ secrets.GITHUB_TOKEN1 }}",
        "password=$DB_PASSWORD1",
        "password: '{{ vault_password_1 }}'",
        "password=<your-password-1>",
        "password=********",
    ],
    "types and names": [
        "password: Utf8String,",
        "password: String64Type;",
        "secret: Ed25519SecretKey,",
        "password: SHA256-hashed",
        "token: UnicodeToken16Builder",
        "if password == 'hunter2222':",
        "secret_key: bytes32",
    ],
    "passwords of manuals": ["password = 'password123'", "DB_PASSWORD=changeme1", '"password": "test1234"'],
    "what is no secret": [
        "The password: at least 8 characters",
        f"next_page_token={TOKEN}",
        "token: 0xdAC17F958D2ee523a2206206994597C13D831ec7",
        f"compass: {TOKEN}",
        f"etag = {HEX}",
        "token 1234567890123456 was refused",
        "design=12 sig=5.67",
        "Secret: the story of 12 monkeys",
        "https://x.org/passport?id=12345678a",
    ],
}


@pytest.mark.parametrize("where", GOES)
def test_a_secret_goes_by_its_name(where: str) -> None:
    assert {text: scrubbed(text) for text in GOES[where]} == GOES[where]


@pytest.mark.parametrize("what", STAYS)
def test_what_stands_in_place_of_a_secret_stays(what: str) -> None:
    assert [text for text in STAYS[what] if scrubbed(text) != text] == []
