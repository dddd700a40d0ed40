"""Passwords and tokens that no `=` or `:` names: in sentences, options, tags and calls."""

import string
from random import Random

import pytest

from tests.pipeline.stages.pii.test_kinds import scrubbed

STRONG = {
    "in a sentence": [
        "Your password is {}. Please change it.",
        "The password for the web site is {}\nGreetings",
        "password is: {}",
        "Das Passwort lautet {}, bitte ändern.",
        "le mot de passe est {}",
        "la contraseña es {}",
        "login bob / password {}",
        "user: bob pass: {}",
        "pw: {}",
        "пароль {}",
        "密码\uff1a{}",
        "密码是{}",
        "パスワード\uff1a{}",
        "비밀번호는 {}",
    ],
    "on a command line": [
        "mysql -u root -p{} shop",
        "mysqldump -uroot -p'{}' shop > a.sql",
        "sshpass -p {} ssh me@host",
        "docker login -u me -p {} registry.example",
        "redis-cli -a {} ping",
        "mongosh --password {}",
        "gpg --passphrase '{}' -d x",
        "openssl enc -k {}",
        "zip -P {} a.zip",
        "curl -u admin:{} https://api.example/v1",
        "curl --user admin:{} https://api.example/v1",
        "machine x.example login bob password {}",
    ],
    "in code and settings": [
        "<password>{}</password>",
        "<db:password>{}</db:password>",
        '<add key="Password" value="{}"/>',
        "CREATE USER ann IDENTIFIED BY '{}';",
        "ALTER USER ann WITH PASSWORD '{}';",
        "define('DB_PASSWORD', '{}');",
        "requests.get(url, auth=('bob', '{}'))",
        'smtp.login("bob", "{}")',
        'psk="{}"',
    ],
}

OTHERS = {
    "Das Passwort lautet Sommer2024.": "Das Passwort lautet [SECRET].",
    "curl -H 'Bearer aZ9kQ2mX7pLw4RtY8vBn3Cd6' x": "curl -H 'Bearer [SECRET]' x",
    "API key: aZ9kQ2mX7pLw4RtY8vBn3Cd6": "API key: [SECRET]",
    "key 0b5f3b9d0f6b4cd2a2b5d2f4a7f8c9e1-us12": "key [SECRET]",
    "PAT 1/1204567890123456:0b5f3b9d0f6b4cd2a2b5d2f4a7f8c9e1": "PAT [SECRET]",
    "id k3T8Q~dEfGhIjKlMnOpQrStUvWxYz0123456789ab": "id [SECRET]",
}

STAYS = {
    "sentences about passwords": [
        "The password is base64-encoded and at least 8 characters long.",
        "A password is hashed with PBKDF2-SHA256.",
        "passwords in UTF-8/ISO-8859-1",
        "The token is RS256-signed, the password is AES256-GCM encrypted.",
        "your password for user1234 expires",
        "If the password is wrong, error E1045x is shown",
        "the password 2024-01-01T00:00",
        "Boarding pass: AB12CDEF",
        "The password is http://example.com/reset?id=1a2b3c",
        "Pass the value x1y2z3w4 on",
    ],
    "options that take something else": [
        "mysql -u root -p shop2archive",
        "mkdir -p dir1name/sub2name",
        "docker run -p 8080:80 -p web1:port2 image",
        "cp -p file1name copy2name",
        "ssh -p 2222 -i key1name2x user@host",
        "mysql -P 3306 -h db1",
        "curl -u $USER1:$PASSWORD1 x",
        "--password $DB_PASSWORD1",
    ],
    "what stands in place of a password": [
        "<password>${db.password1}</password>",
        "<password>{{ vault_pass1 }}</password>",
        "IDENTIFIED BY 'password123'",
        'login("bob", "page2")',
        "define('DB_HOST', 'db1.example2.org');",
        '<add key="Timeout" value="100seconds"/>',
    ],
}


def passwords(count: int) -> list[str]:
    """Drawn ones, with a digit between letters and a mark that no sentence ends with."""
    drawn = Random(7)
    letters = string.ascii_letters

    def one() -> str:
        parts = [
            "".join(drawn.choices(letters, k=drawn.randint(2, 5))),
            str(drawn.randrange(10)),
            "".join(drawn.choices(letters, k=drawn.randint(2, 4))),
            drawn.choice("!#$%^&*?~"),
            "".join(drawn.choices(letters + string.digits, k=drawn.randint(2, 6))),
        ]
        return "".join(parts)

    return [one() for _ in range(count)]


@pytest.mark.parametrize("where", STRONG)
def test_a_password_goes_by_the_word_before_it(where: str) -> None:
    texts = [
        (form.replace("{}", one), form.replace("{}", "[SECRET]"))
        for form in STRONG[where]
        for one in passwords(40)
    ]
    assert [text for text, expected in texts if scrubbed(text) != expected] == []


@pytest.mark.parametrize("text", OTHERS)
def test_a_token_goes_by_its_name_or_shape(text: str) -> None:
    assert scrubbed(text) == OTHERS[text]


@pytest.mark.parametrize("what", STAYS)
def test_what_is_no_password_stays(what: str) -> None:
    assert [text for text in STAYS[what] if scrubbed(text) != text] == []
