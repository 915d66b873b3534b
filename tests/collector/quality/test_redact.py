"""What must not be kept, and what must stay as it is."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.quality.redact import RULES, Redactor, iban, luhn, usable

PLAIN = Redactor()


def redacted(text: str) -> str:
    return PLAIN.redact(text).text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("write to ann.lee+news@mail.example.co.uk, please", "write to [email], please"),
        ("mail: Jürgen@müller-büro.de.", "mail: [email]."),
        ("联系方式：zhang.wei@example.cn。", "联系方式：[email]。"),
        # card numbers that the schemes publish for tests
        ("4111 1111 1111 1111 exp 12/28", "[card] exp 12/28"),
        ("card 5555-5555-5555-4444.", "card [card]."),
        ("amex 378282246310005", "amex [card]"),
        ("GB82 WEST 1234 5698 7654 32", "[iban]"),
        ("DE89370400440532013000", "[iban]"),
        ("call +1 (555) 010-9999 now", "call [phone] now"),
        ("call +49 30 901820", "call [phone]"),
        ("(415) 555-0132 or 415-555-0132", "[phone] or [phone]"),
        ("06 12 34 56 78", "[phone]"),
        ("手机 13812345678", "手机 [phone]"),
        ("from 192.168.10.7 to 2001:db8::8a2e:370:7334", "from [ip] to [ip]"),
        ("http://10.0.0.1:8000/v1", "http://[ip]:8000/v1"),
        ("fe80::1%eth0", "fe80::1%eth0"),  # of one link only: names nobody
        ("postgres://admin:s3cr3t@db/prod", "postgres://[url-password]@db/prod"),
        ("Authorization: Bearer abcdefghijklmnop0123", "Authorization: Bearer [bearer]"),
        ("OPENAI_API_KEY=sk-proj-abcdefghijklmnop1234", "OPENAI_API_KEY=[key]"),
        ("use sk-abcdefghijklmnop1234 here", "use [key] here"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[key]"),
        ("hf_abcdefghijklmnopqrstuvwxyz", "[key]"),
        ('"password": "correct-horse"', '"password": "[secret]"'),
        ("my-client-secret: 'a1b2c3d4e5'", "my-client-secret: '[secret]'"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U", "[jwt]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----\nbye",
            "[private-key]\nbye",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow", "[private-key]"),  # cut short: what is there is secret as well
    ],
)
def test_what_names_a_person_or_opens_a_door_goes(text: str, kept: str) -> None:
    assert redacted(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112", "order 1234567890123456", "0000 0000 0000 0000",  # no check digit, or no number
        "2026-12-01 10:00:00", "12:30:45", "2026-12-01T10:00:00+01:00", "released 2024.10.11",
        "version 1.2.3.4567", "999.1.2.3", "std::vector::size", "::", "a::b", "5::3", "10:20:30",
        "pi is 3.14159265358979", "population 8,123,456,789", "ISBN 978-3-16-148410-0", "1 000 000 000 tokens",
        "@decorator", "user@localhost", "a @ b", "git@", "torch==2.9.0", "x@y.1",
        "password: ****", "password = ${DB_PASSWORD}", "api_key: <your key>", "the password is long", "tokens: 4096",
        "max_tokens=1024", "secret: yes", "sk-learn", "bearer of bad news", "basic understanding of it all",
        "0.123 0.456 0.789", "[1, 2, 3, 4, 5, 6, 7, 8]", "0x7ffdeadbeef", "GPT-4 took 12-34-56",
        "你好，世界", "https://example.com/a?b=c", "1-2-3", "3.5e-10", "0123",
    ],
)  # fmt: skip
def test_what_only_looks_a_little_like_it_stays(text: str) -> None:
    assert redacted(text) == text


def test_how_much_went_is_counted_by_rule() -> None:
    found = PLAIN.redact("a@b.example and c@d.example from 10.0.0.1")
    assert found.taken == {"email": 2, "ip": 1}


def test_own_rules_come_first_and_may_name_the_part_that_goes() -> None:
    mine = Redactor([("staff", r"EMP-\d{6}"), ("room", r"room (?P<secret>\d+)")])
    assert mine.redact("EMP-123456 is in room 12, ann@b.example").text == "[staff] is in room [room], [email]"


@pytest.mark.parametrize(("pattern", "says"), [("(", "not a regular"), ("a*", "empty text"), ("(a+)+b", "for ever")])
def test_a_rule_that_cannot_be_used_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        usable(pattern)


@given(st.text(max_size=300))
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


SECRETS = ["ann@mail.example", "4111 1111 1111 1111", "192.168.10.7", "sk-abcdefghijklmnop1234", "+49 30 9018200"]


@given(st.lists(st.sampled_from([*SECRETS, "hello", "\n", "你好", "(see", "below)", "is", "1"]), max_size=12))
def test_secrets_among_words_all_go(words: list[str]) -> None:
    kept = redacted(" , ".join(words))
    assert [secret for secret in SECRETS if secret in kept] == []
    assert kept.count("hello") == words.count("hello")


@given(st.integers(10**11, 10**18))
def test_one_check_digit_of_ten_is_right(digits: int) -> None:
    assert sum(luhn(f"{digits}{last}") for last in range(10)) == 1


def test_account_numbers_of_the_registry_pass_their_check() -> None:
    # examples of the SWIFT IBAN registry
    examples = "AL47212110090000000235698741 FR1420041010050500013M02606 NL91ABNA0417164300 NO9386011117947".split()  # noqa: SIM905
    assert [iban(one) for one in examples] == [True] * 4
    assert not any(iban(one[:-1] + chr(ord(one[-1]) ^ 1)) for one in examples)


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
@pytest.mark.parametrize(
    "piece", ["a", "1", "1 ", "-", "a@", "://a:", "eyJ", "1.", ":", "AB12", "password=", "+1 ", "sk-"]
)
def test_no_rule_takes_long_over_a_text_that_nearly_fits(rule: str, piece: str) -> None:
    from time import process_time

    one = next(r for r in RULES if r.name == rule)
    short, long = (piece * (n // len(piece)) for n in (4000, 64000))
    times = []
    for text in (short, long):
        begin = process_time()
        sum(1 for _ in one.pattern.finditer(text))
        times.append(process_time() - begin)
    assert times[1] < 60 * max(times[0], 0.002)  # 16 times the text; quadratic would be 256 times the work


def test_random_bytes_as_text_are_no_secrets() -> None:
    text = " ".join(Random(3).randbytes(8).hex() for _ in range(300))
    assert set(PLAIN.redact(text).taken) <= {"card"}
