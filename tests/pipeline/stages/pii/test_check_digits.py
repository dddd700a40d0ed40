"""Numbers with check digits and ranges: SSNs, cards, IBANs."""

import pytest

from tests.pipeline.stages.pii.test_kinds import scrubbed


@pytest.mark.parametrize(
    "text", ["123-45-6789", "853-37-1694", "ssn: 123 45 6789", "Social Security no. 123456789"]
)
def test_a_social_security_number_that_could_be_issued_goes(text: str) -> None:
    assert scrubbed(text).endswith("[SSN]")


@pytest.mark.parametrize(
    "text",
    [
        "000-12-3456",
        "666-12-3456",
        "900-12-3456",
        "123-00-4567",
        "123-45-0000",
        "078-05-1120",
        "1-123-45-6789",
        "123-45-67890",
        "123 45 6789",
    ],
)
def test_a_number_that_is_never_issued_or_is_longer_is_no_social_security_number(text: str) -> None:
    assert "[SSN]" not in scrubbed(text)


@pytest.mark.parametrize(
    "number",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5555-5555-5555-4444",
        "2223003122003222",
        "2221000000000009",
        "2720999999999996",
        "378282246310005",
        "3782 822463 10005",
        "6011111111111117",
        "30569309025904",
        "3530111333300000",
        "6200000000000005",
        "4131034282458809939",
    ],
)
def test_a_card_number_with_issuer_length_and_check_digit_goes(number: str) -> None:
    assert scrubbed(f"paid {number} 12/27.") == "paid [CREDIT_CARD] 12/27."


@pytest.mark.parametrize("number", ["4222222222222", "630427373398", "3521573075098939"])
def test_short_card_numbers_and_those_of_no_issuer_need_a_word_that_says_so(number: str) -> None:
    assert scrubbed(f"order {number}, on its way") == f"order {number}, on its way"
    assert scrubbed(f"my card {number}") == "my card [CREDIT_CARD]"
    assert scrubbed(f"{number} is my credit card") == "[CREDIT_CARD] is my credit card"
    assert scrubbed(f"order {number}. My card") == f"order {number}. My card"


def test_the_edges_of_the_range_of_jcb_need_no_word() -> None:
    assert scrubbed("3528000000000007 3589000000000003") == "[CREDIT_CARD] [CREDIT_CARD]"


@pytest.mark.parametrize(
    "number",
    [
        "GB82WEST12345698765432",
        "gb82 west 1234 5698 7654 32",
        "DE89 3704 0044 0532 0130 00",
        "NO9386011117947",
    ],
)
def test_an_iban_with_the_right_length_and_checksum_goes(number: str) -> None:
    assert scrubbed(f"to {number}, please") == "to [IBAN], please"
