"""Faults that the built-in checks must find, and texts that they must leave alone."""

import base64
import json
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collector.quality.checks import Asked, findings

ENGLISH = (
    "The scheduler admits a request once enough blocks of the cache are free. It then computes the prompt in chunks, so "
    "that running requests are not held up for long. When memory runs short, the youngest request is put back into the "
    "queue, and its work is done again later. "
)
CHINESE = "调度器会在缓存块足够时接纳请求，然后分块计算提示词，使正在运行的请求不会等待太久。内存不足时，最新的请求会回到队列中。"
JAPANESE = "スケジューラはキャッシュに空きがあるときにリクエストを受け付け、プロンプトを分割して計算します。API の応答は速くなります。"
KOREAN = (
    "스케줄러는 캐시 블록이 충분할 때 요청을 받아들입니다. vLLM에서 prefix cache를 사용하면 API의 응답이 빨라집니다."
)
ARABIC = (
    "يقبل المجدول الطلب عندما تتوفر كتل كافية في الذاكرة المؤقتة، ثم يحسب الموجه على أجزاء حتى لا تنتظر الطلبات طويلا."
)
HEBREW = "המתזמן מקבל בקשה כאשר יש מספיק בלוקים פנויים במטמון, ולאחר מכן מחשב את ההנחיה בחלקים."
RUSSIAN = (
    "Планировщик принимает запрос, когда в кэше достаточно свободных блоков, и вычисляет подсказку частями через API."
)
HINDI = "शेड्यूलर अनुरोध तब स्वीकार करता है जब कैश में पर्याप्त ब्लॉक खाली हों, और फिर प्रॉम्प्ट को टुकड़ों में गणना करता है।"
THAI = "ตัวจัดตารางจะรับคำขอเมื่อแคชมีบล็อกว่างเพียงพอ จากนั้นใช้ Python คำนวณพรอมต์เป็นส่วน ๆ"
GREEK = "Ο χρονοπρογραμματιστής δέχεται ένα αίτημα όταν υπάρχουν αρκετά ελεύθερα μπλοκ στην κρυφή μνήμη."
TABLE = "| name | value | ok |\n|------|-------|----|\n" + "".join(f"| row {n} | {n * 7} | yes |\n" for n in range(40))
ZEROS = "| a | b | c |\n|---|---|---|\n" + "| 0 | 0 | 0 |\n" * 60
CODE = "```python\ndef total(values: list[int]) -> int:\n    found = 0\n    for value in values:\n        found += value\n    return found\n```"
LIST = "\n".join(f"{n}. Restart the server and look at the log of replica {n}." for n in range(1, 60))
POEM = "\n".join(
    "Row, row, row your boat,\nGently down the stream.\nMerrily, merrily, merrily, merrily,\nLife is but a dream."
    for _ in range(3)
)
LANGUAGES = "Hello: Привет, 你好, こんにちは, 안녕하세요, مرحبا, שלום, नमस्ते, สวัสดี, გამარჯობა, Բարեւ, Γεια, வணக்கம், হ্যালো"
BASE64 = base64.b64encode(Random(1).randbytes(3000)).decode()
HEX = " ".join(f"{b:02x}" for b in Random(2).randbytes(1500)) + " 00" * 200
RULER = "Summary\n" + "-" * 300 + "\n" + "=" * 300
EMOJI = "Done! 🎉🎉🎉 All tests pass ✅✅✅ — see the log for more 👍🏽 👨‍👩‍👧‍👦"
LATEX = r"The loss is $\mathcal{L} = -\sum_i \lambda_i \log p_\theta(x_i)$, where $\lambda_i \geq 0$ and Δλ → 0."
JSON_LOG = "\n".join(json.dumps({"level": "info", "message": "request done", "code": 200, "n": n}) for n in range(50))
DIFF = "\n".join(f"+    assert found[{n}] == expected[{n}]" for n in range(40))
NAMES = ["ENGLISH", "CHINESE", "JAPANESE", "KOREAN", "ARABIC", "HEBREW", "RUSSIAN", "HINDI", "THAI", "GREEK", "TABLE", "ZEROS", "CODE", "LIST", "POEM", "LANGUAGES", "BASE64", "HEX", "RULER", "EMOJI", "LATEX", "JSON_LOG", "DIFF"]  # fmt: skip
STOPPED = Asked(finish_reason="stop")


def names(text: str, asked: Asked = STOPPED) -> list[str]:
    found = findings(text, asked)
    assert all(0 <= one.start <= one.end <= len(text) for one in found)
    assert all(one.end > one.start or not text for one in found)
    return [one.check for one in found]


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_answer_of_this_kind_is_left_alone(name: str) -> None:
    text: str = globals()[name]
    assert names(text) == []
    assert names(text, Asked(prompt=text, finish_reason="stop")) == []
    assert names(text * 3) == []


@pytest.mark.parametrize("text", ["", " \n\t ", "\u200b\ufeff\u00a0\n"])
def test_nothing_visible_is_empty(text: str) -> None:
    assert names(text) == ["empty"]
    assert names(text, Asked(finish_reason="tool")) == []  # the answer is the call


@pytest.mark.parametrize(
    ("round_", "times"),
    [
        ("I am sorry, but I cannot help with that request. ", 12),
        ("the ", 100),
        ("!", 200),  # what a model says whose numbers became NaN: token 0 for ever
        ("然后模型会继续输出相同的内容，", 20),
        ("ですので、", 60),
        ("\n- Check the log of the server for errors and restart it if there are any.", 10),
        ("وهكذا يستمر النموذج في التكرار ", 20),
        ("return self.value\n    ", 30),
        ("A long paragraph that a model in a loop gives again and again, word by word, without an end in sight. " * 3, 7),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cut", [0, 3])
def test_a_loop_is_found_wherever_it_was_cut(round_: str, times: int, cut: int) -> None:
    text = ENGLISH + round_ * times
    text = text[: len(text) - cut] if len(round_) > cut else text
    found = [one for one in findings(text, STOPPED) if one.check == "repetition"]
    assert len(found) == 1
    assert (
        len(ENGLISH) - len(round_) - 30 <= found[0].start <= len(ENGLISH) + len(round_)
        or len(text) - found[0].start > 3900
    )
    assert found[0].end == len(text.rstrip())


@pytest.mark.parametrize(
    "text",
    [
        ENGLISH + "I cannot help with that. " * 30 + "Is there anything else that I can do for you today?",  # it ended
        "ha" * 20,
        "na " * 16 + "Batman!",
        "Very, very, very, very, very good.",
        "| yes | no |\n" * 20,
        "0, " * 200,
        "ACGT" * 10,
        "\n".join(["<td></td>"] * 8),
        "............................................................................ 12",
    ],
)
def test_what_comes_often_is_not_yet_a_loop(text: str) -> None:
    assert names(text) == []


@given(st.text(min_size=0, max_size=400), st.text(alphabet=st.characters(categories=["L"]), min_size=25, max_size=60))
def test_many_rounds_of_words_at_the_end_are_a_loop_whatever_came_before(before: str, words: str) -> None:
    assume(not set(words) <= set("AxXoO"))  # people draw with these
    one = words + " "
    found = [f for f in findings(before + one * 14, STOPPED) if f.check == "repetition"]
    assert [f.end for f in found] == [len((before + one * 14).rstrip())]


@given(st.integers(0, 2**32))
def test_random_words_are_no_loop(seed: int) -> None:
    random = Random(seed)
    lexicon = ENGLISH.split()
    text = " ".join(random.choice(lexicon) for _ in range(300))
    assert names(text) == []


@pytest.mark.parametrize(
    "text",
    [
        ENGLISH.encode("utf-8").decode("latin-1") + RUSSIAN.encode("utf-8").decode("latin-1"),
        "Das Wörterbuch enthält schöne Wörter für Übungen über größere Städte".encode().decode("latin-1") * 3,
        "l’été “dernier” c’était déjà l’année où l’on “voyait” l’île".encode().decode("cp1252", "ignore"),
        ENGLISH[:100] + "\ufffd" * 12,
        "\x00\x01\x02\x03\x05\x06 broken \x00\x01\x02 output",
        "TheĠscheduler,ĠadmitsĠaĠrequestĠonceĠenoughĠblocksĠareĠfree",
        "<0xE4><0xBD><0xA0><0xE5><0xA5><0xBD> means hello",
        "그럼 المس ция 的な Ведь שלום नमस्ते ที่ および 하지만 عندما процесс ไม่ をした ใน который ただし 그리고 הוא में для の من",
        "Thе sсhеdulеr аdmits а rеquеst оnсе еnоugh blосks оf thе сасhе аrе frее аnd соmputеs it",  # Cyrillic е, с, а, о
    ],
)  # fmt: skip
def test_garbled_text_is_found(text: str) -> None:
    assert "garbled" in names(text)


def test_an_answer_in_a_script_that_nobody_used_is_found() -> None:
    asked = "Explain how the scheduler of an inference server admits requests, in three sentences."
    assert names(CHINESE * 2, Asked(prompt=asked)) == ["wrong_script"]
    assert names(RUSSIAN, Asked(prompt=asked)) == ["wrong_script"]
    assert names(CHINESE * 2, Asked(prompt=asked + " Answer in Chinese.")) == []
    assert names(CHINESE * 2, Asked(prompt="Translate: the scheduler admits a request once there is room.")) == []
    assert names(ENGLISH, Asked(prompt=CHINESE)) == []  # code and names are Latin everywhere
    assert names(CHINESE * 2, Asked(prompt="2 + 2 = ?")) == []  # too little to know
    assert names(CHINESE * 2, Asked()) == []


def test_a_sentence_cut_at_the_token_limit_is_found() -> None:
    cut = ENGLISH.rstrip()[:-30]
    assert names(cut, Asked(finish_reason="length")) == ["truncated"]
    assert names(CHINESE[:-3] * 3, Asked(finish_reason="length")) == ["truncated"]
    assert names(cut, STOPPED) == []
    assert names(ENGLISH, Asked(finish_reason="length")) == []  # it had just ended its sentence
    assert names("positive", Asked(finish_reason="length")) == []  # a label that was meant to be one token


def test_a_code_block_without_an_end_is_found() -> None:
    assert names(CODE[:-3]) == ["truncated"]
    assert names(CODE + "\n" + CODE[:-4]) == ["truncated"]
    assert names("````markdown\n" + CODE + "\n````") == []
    assert names(CODE[:-3], Asked(clipped=True)) == []


@pytest.mark.parametrize(
    "text", ['{"a": 1', "Sure! {}", '{"a": NaN}', "```json\n{}\n```", "{'a': 1}", '{"a": 1} {"b": 2}', "[" * 200_000]
)
def test_no_json_where_json_was_asked_is_found(text: str) -> None:
    assert "invalid_json" in names(text, Asked(json=True, finish_reason="stop"))
    assert "invalid_json" not in names(text)
    assert names(text, Asked(json=True, clipped=True, finish_reason="stop"))[-1:] != ["invalid_json"]


@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)))  # fmt: skip
def test_whatever_json_writes_is_json(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert "invalid_json" not in names(text, Asked(json=True, finish_reason="stop"))


@given(st.text(max_size=3000), st.text(max_size=300), st.booleans())
def test_no_text_breaks_a_check(text: str, prompt: str, asked_json: bool) -> None:
    names(text, Asked(prompt=prompt, json=asked_json, finish_reason="length"))


def test_findings_quote_nothing() -> None:
    (found,) = findings(ENGLISH + "my password is hunter2 and I say so. " * 20, STOPPED)
    assert "hunter2" not in found.what + found.reference
    assert found.reference.startswith("repetition[")
