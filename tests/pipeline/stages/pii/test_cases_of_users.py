"""Values as users met them, and their neighbors: what goes, and what looks like it and stays."""

import pytest

from tests.pipeline.stages.pii.test_kinds import scrubbed

HEX, MIXED = "0123456789abcdef", "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA"

GOES = {
    "the address in a text without spaces, with at most five letters before the @": {
        "请联系张伟@example.com谢谢": "[EMAIL]谢谢",
        "请写信给张伟@example.com或李雷@example.com。": "请[EMAIL][EMAIL]。",
        "メールは山田太郎@example.co.jpまで": "メール[EMAIL]まで",
        "発注担当佐藤一郎@会社.jpへ": "発注担[EMAIL]へ",
        "山田@例え.jp": "[EMAIL]",
        "メール\uff1a山田@example.jp": "メール\uff1a[EMAIL]",
        "메일은 김철수@example.kr로": "메일은 [EMAIL]로",
        "微信zhang伟@example.com都行": "微信[EMAIL]都行",
        "สวัสดีครับกรุณาติดต่อคุณสมชาย@example.co.thครับ": "สวัสดีครับกรุณาติดต่อ[EMAIL]ครับ",
        "ຕິດຕໍ່ ສົມຊາຍ@example.la": "ຕິດຕໍ່ [EMAIL]",
        "联系人\uff1a李雷\uff08lilei@qq.com\uff09": "联系人\uff1a李雷\uff08[EMAIL]\uff09",
    },
    "a quoted local part that needs its quotes": {
        '"john doe"@example.org': "[EMAIL]",
        'write "j.doe"@example.org': "write [EMAIL]",
        '<"john"@example.org>': "<[EMAIL]>",
        'mailto:"john"@example.org': "mailto:[EMAIL]",
    },
    "a number of a Korean company that may be two years": {
        "고객센터 1544-2000": "고객센터 [PHONE]",
        "☎ 1661-2000": "☎ [PHONE]",
        "문의: 1800-2023": "문의: [PHONE]",
        "대표번호 1577-1600": "대표번호 [PHONE]",
        "1544-2000번으로 주세요": "[PHONE]번으로 주세요",
        "Tel. 1600-1900": "Tel. [PHONE]",
    },
    "passwords on command lines of Windows": {
        "net user bob Pa55word! /add": "net user bob [SECRET] /add",
        "net user administrator S3cr3tpw9": "net user administrator [SECRET]",
        "net.exe user jo S3cretpw9 /add /domain": "net.exe user jo [SECRET] /add /domain",
        'C:\\> net user jo "S3cr3tpw9" /add': 'C:\\> net user jo "[SECRET]" /add',
        "psexec \\\\srv -u bob -p S3cr3tpw9 cmd": "psexec \\\\srv -u bob -p [SECRET] cmd",
        "nxc smb srv -u bob -p S3cr3tpw9": "nxc smb srv -u bob -p [SECRET]",
        "dsadd user cn=bob -pwd S3cr3tpw9": "dsadd user cn=bob -pwd [SECRET]",
        'ConvertTo-SecureString "S3cr3tpw9" -AsPlainText': 'ConvertTo-SecureString "[SECRET]" -AsPlainText',
    },
    "an extension as RFC 3966 writes it": {
        "tel:+1-212-555-0187;ext=12": "tel:[PHONE]",
        "TEL;TYPE=work:+49 30 901820;ext=7\nEND": "TEL;TYPE=work:[PHONE]\nEND",
    },
    "keys of newer services": {
        f"csk-{MIXED[:24]}{MIXED[:24]}": "[SECRET]",
        f"fc-{HEX}{HEX}": "[SECRET]",
        f"jina_{MIXED}{MIXED[:28]}": "[SECRET]",
        f"phx_{MIXED}{MIXED[:11]}": "[SECRET]",
        f"e2b_{HEX}{HEX}01234567": "[SECRET]",
        f"rnd_{MIXED[:28]}": "[SECRET]",
        f"napi_{MIXED}{MIXED}": "[SECRET]",
        f"vck_{MIXED}{MIXED[:24]}": "[SECRET]",
        f"cfat_{MIXED}{MIXED[:16]}": "[SECRET]",
        f"tgp_v1_{MIXED}{MIXED[:11]}": "[SECRET]",
        f"wandb_v1_{MIXED}{MIXED}": "[SECRET]",
        f"ABSK{MIXED * 4}=": "[SECRET]",
        f"AQ.Ab8RN6{MIXED}{MIXED[:12]}": "[SECRET]",
        f"SENTRY=sntrys_{MIXED * 4}=_{MIXED}abc": "SENTRY=[SECRET]",
        f"glpat-{MIXED[:27]}.01.0w1{MIXED[:6]}.": "[SECRET].",
    },
}

STAYS = {
    "what stands before an @ of another kind": [
        'He said "yes"@home.it',
        'say "hi"@all.com?',
        '"x"@en.wikipedia',
        '<s> <p> "label"@de-DE .',
        "装饰器@property.setter",
        "使用@decorator.py",
        "价格@99.com",
        "@张伟 你好",
        "用户名@张三",
        "张伟@公司",
        "関数\uff20クラス",
        "请看@张三\uff0c然后.com",
    ],
    "years that begin as numbers of Korean companies do": [
        "1544-2000",
        "1544-2000년",
        "years 1577-1644",
        "연도 1600-1700",
        "전화의 역사 1877-1900",
        "2020-2024 전화",
        "1588-1600년의 전쟁",
    ],
    "words of commands without a password": [
        "net user /add",
        "net user bob /delete",
        "net user bob * /add",
        "net user %NAME% %PASS2024% /add",
        "The net user base grew 2024fold",
        "net users paid 12345678",
        "a user named S3cr3tpw9x",
        "net use x: /delete",
    ],
    "what only begins like a newer key": [
        f"fc-{HEX}",
        "csk-12",
        "jina_embeddings_v3",
        "e2b_test",
        "phx_id",
        "rnd_seed_1234567890",
        "ABSK1",
        f"napi_status_{HEX}",
        "AQ.Ab8",
        "vck_1",
    ],
}


@pytest.mark.parametrize("what", GOES)
def test_what_users_met_goes(what: str) -> None:
    assert {text: scrubbed(text) for text in GOES[what]} == GOES[what]


@pytest.mark.parametrize("what", STAYS)
def test_what_users_met_stays(what: str) -> None:
    assert [scrubbed(text) for text in STAYS[what]] == STAYS[what]
