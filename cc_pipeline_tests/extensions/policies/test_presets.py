"""Presets against datatrove's verdicts, and languages that were not thought of when their rules were written."""

# ruff: noqa: E501

from __future__ import annotations

import gzip
import json

import pytest

from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.signals.quality import quality
from cc_pipeline.extensions.policies.dataset_filters import (
    PRESETS,
    failed_rules,
    rules_of,
    split_words,
    unapplied_rules,
)
from cc_pipeline_tests.corpus import needs_corpus
from cc_pipeline_tests.documents.gold import PAGES, gold_articles
from cc_pipeline_tests.documents.pages import page
from cc_pipeline_tests.extensions.policies.blemished import VERDICTS, texts

#: Pages of the corpus by their language; one of the gold articles is Korean.
REAL = {
    "readability/gmw/source.html": "zho",
    "readability_more/pixnet/source.html.gz": "zho",
    "readability_more/qq/source.html.gz": "zho",
    "readability_more/youth/source.html.gz": "zho",
    "newspaper/html/chinese_article.html": "zho",
    "newspaper/html/japanese_article2.html": "jpn",
}
#: Prose of our own in four languages whose words or lines are not as in English.
PROSE = {
    "zho": "河边的老磨坊已经有两百年的历史。春天的时候，村里的人们都会走过那座石桥，到对岸的市场去买菜。"
    "今年的雨水很多，河水漫过了低处的田地，可是大家并不担心。老人说，水退以后土地会更加肥沃。孩子们在岸上放风筝，"
    "一直玩到太阳落山才回家。晚上家家户户点起灯来，坐在门口谈论白天的事情。\n明天还会有新的客人来到这里，"
    "他们听说磨坊的面粉很好。主人准备了茶水和点心，等着大家。",
    "jpn": "川のほとりの古い水車小屋は、二百年の歴史があります。春になると、村の人々は石の橋を渡って向こう岸の市場へ行きます。"
    "今年は雨が多く、低い畑は水につかりましたが、誰も心配していません。水が引けば土はもっと豊かになると、老人は言います。"
    "子どもたちは夕方まで土手で凧を揚げて遊びました。\n夜には家々に明かりがともり、人々は戸口に座って一日の出来事を話します。明日もまた新しい客が来るでしょう。",
    "kor": "강가의 오래된 물레방아는 이백 년의 역사를 가지고 있다. 봄이 되면 마을 사람들은 돌다리를 건너 맞은편 시장으로 간다. "
    "올해는 비가 많이 와서 낮은 밭이 물에 잠겼지만 아무도 걱정하지 않는다. 물이 빠지면 땅이 더 기름지게 된다고 노인들은 말한다. "
    "아이들은 해가 질 때까지 둑에서 연을 날리며 놀았다.\n밤이 되면 집집마다 불을 켜고 사람들은 문 앞에 앉아 하루 일을 이야기한다. "
    "내일도 새로운 손님이 올 것이다. 주인은 차와 과자를 준비하고 기다린다. 방앗간의 밀가루가 좋다는 소문이 났기 때문이다. "
    "그래서 멀리서 온 사람들도 이곳에서 하룻밤을 묵고 간다.",
    "tha": "โรงสีเก่าริมแม่น้ำมีอายุมากกว่าสองร้อยปี เมื่อถึงฤดูใบไม้ผลิชาวบ้านจะเดินข้ามสะพานหินไปตลาดฝั่งตรงข้าม "
    "ปีนี้ฝนตกมากจนน้ำท่วมทุ่งนาที่อยู่ต่ำ แต่ไม่มีใครกังวล คนแก่บอกว่าเมื่อน้ำลดแล้วดินจะอุดมสมบูรณ์ขึ้น "
    "เด็กๆ เล่นว่าวบนคันดินจนพระอาทิตย์ตก\nตอนกลางคืนทุกบ้านจุดไฟและผู้คนนั่งคุยกันหน้าประตูเรื่องที่เกิดขึ้นในวันนั้น",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_verdicts_are_datatroves(preset: str) -> None:
    verdicts = json.loads(VERDICTS.read_text("utf-8"))
    ours = {at for at, text in enumerate(texts()) if failed_rules(text, "eng", [preset])}
    alike, spacy = ({int(at) for at in each[preset].split()} for each in verdicts.values())
    assert ours == alike, "datatrove on our words"
    assert len(ours ^ spacy) <= 0.02 * len(texts()), "datatrove on spaCy's"
    assert 0 < len(ours) < len(texts())


@pytest.mark.parametrize("language", PROSE)
def test_prose_of_every_script_passes(language: str) -> None:
    text = PROSE[language]
    assert failed_rules(text, language, list(PRESETS)) == set()
    figures = quality(text)
    assert figures is not None
    assert figures.words >= 50
    assert figures.short_lines == 0
    assert figures.alphabetic_words >= 0.8
    # it says so, and what is left still looks at something
    assert unapplied_rules(["gopher"], language)
    assert all(rules_of(preset, language) for preset in PRESETS)
    assert "gopher: duplicate_lines" in failed_rules((text.split("\n")[0] + "\n") * 9, language, ["gopher"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("नगर परिषद ने, मंगलवार।", ["नगर", "परिषद", "ने", ",", "मंगलवार", "।"]),
        ("মিল হাজার।", ["মিল", "হাজার", "।"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("قَالَ، «نَعَم»", ["قَالَ", "،", "«", "نَعَم", "»"]),
        ("می\u200cخواهم cafe\u0301s", ["می\u200cخواهم", "cafe\u0301s"]),
    ],
)
def test_signs_written_with_letters_part_no_word(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_prose_of_scripts_with_signs_passes() -> None:
    text = (
        "नगर परिषद ने मंगलवार को पुराने बंदरगाह की दीवार को फिर से बनाने का निर्णय लिया। तीन विश्वविद्यालयों के इंजीनियरों ने "
        "ग्यारह महीने तक लहरों की ऊँचाई नापी और परिणाम प्रकाशित किए।\nमछुआरों का कहना है कि नई योजना से उनके लिए नाव बाँधने की "
        "जगह कम हो जाएगी। महापौर ने उत्तर दिया कि पैसा दो साल के भीतर खर्च करना होगा। पुस्तकालय में चित्र दिखाए गए हैं।"
    )
    assert failed_rules(text, "hin", list(PRESETS)) == set()


@needs_corpus
def test_real_articles_of_unspaced_scripts_pass() -> None:
    files = {name: (PAGES / name).read_bytes() for name in REAL}
    pages = {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in files.items()}
    articles = [(REAL[name], data.decode("utf-8", "replace")) for name, data in pages.items()]
    articles += [("kor", markup) for url, markup, _ in gold_articles() if "entermedia.co.kr" in url]
    assert len(articles) == 7
    for language, markup in articles:
        text = parse_page(page(markup)).text
        assert text is not None and text["content_languages"].startswith(language)
        assert failed_rules(text["main_content"], language, ["gopher", "c4"]) == set()


def test_rules_of_english_stay_with_english() -> None:
    assert unapplied_rules(["gopher", "c4"], "eng") == []
    assert unapplied_rules(["gopher"], "deu") == ["gopher: stop_words"]
    assert len(unapplied_rules(["gopher"], "zho")) == 11


def test_words_are_split_as_in_the_filters_of_others() -> None:
    said = split_words("Don't stop at 10:30, Mr. O'Brien's well-known (old) mill... it's 3,000 m! 河边 x")
    assert (
        " ".join(said) == "Do n't stop at 10:30 , Mr. O'Brien 's well - known ( old ) mill ... it 's 3,000 m ! 河 边 x"
    )
