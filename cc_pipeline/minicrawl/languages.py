"""Sentences in several languages, so that charset and language detection have something real to work on."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Language:
    """Parts of sentences. ``code`` is ISO 639-3 as in the index, ``html`` the value of a lang attribute.

    ``charsets`` are Python codec names in which every sentence can be written; ``cld2`` is the detector's name.
    """

    code: str
    html: str
    cld2: str
    charsets: tuple[str, ...]
    openings: tuple[str, ...]
    middles: tuple[str, ...]
    endings: tuple[str, ...]
    stop: str = "."
    space: str = " "

    def sentence(self, rng: Random) -> str:
        parts = (rng.choice(self.openings), rng.choice(self.middles), rng.choice(self.endings))
        return self.space.join(parts) + self.stop

    def paragraph(self, rng: Random, sentences: int) -> str:
        return self.space.join(self.sentence(rng) for _ in range(sentences))

    def headline(self, rng: Random) -> str:
        return self.space.join((rng.choice(self.openings), rng.choice(self.middles)))


LANGUAGES: dict[str, Language] = {
    language.code: language
    for language in (
        Language(
            "eng", "en-GB", "ENGLISH", ("utf-8", "iso-8859-1", "windows-1252", "ascii"),
            ("The harbour master", "Our oldest orchard", "A quiet street market", "The town library",
             "Every second lamp", "The night train", "Her small workshop", "This year's harvest"),
            ("opens its doors again", "was painted bright green", "has lost a wooden wheel", "keeps the old maps dry",
             "waits for the first snow", "sells more apples than bread", "answers letters from abroad"),
            ("before the bells ring at noon", "although nobody had asked for it", "because the river rose last week",
             "while the neighbours look on", "for the third time since spring", "and charges nothing for the visit"),
        ),
        Language(
            "deu", "de", "GERMAN", ("utf-8", "iso-8859-1", "windows-1252"),
            ("Der Hafenmeister", "Die älteste Mühle", "Unser Wochenmarkt", "Das Rathaus am Fluss",
             "Eine größere Werkstatt", "Der Nachtzug", "Die Stadtbücherei"),
            ("öffnet heute wieder seine Türen", "wurde im Frühling grün gestrichen", "verkauft mehr Äpfel als Brot",
             "wartet geduldig auf den ersten Schnee", "beantwortet alle Briefe aus Übersee"),
            ("bevor mittags die Glocken läuten", "obwohl niemand darum gebeten hatte", "weil das Wasser gestiegen ist",
             "während die Nachbarn zuschauen", "und verlangt keinen Eintritt"),
        ),
        Language(
            "fra", "fr-FR", "FRENCH", ("utf-8", "iso-8859-1", "windows-1252"),
            ("Le maître du port", "La bibliothèque de la ville", "Notre marché du dimanche", "Le train de nuit",
             "Un très vieux moulin", "L'atelier du cordonnier"),
            ("rouvre enfin ses portes", "a été repeint en vert", "vend plus de pommes que de pain",
             "attend la première neige", "répond aux lettres de l'étranger"),
            ("avant que les cloches ne sonnent à midi", "bien que personne ne l'ait demandé",
             "parce que la rivière est montée", "pendant que les voisins regardent", "sans rien faire payer"),
        ),
        Language(
            "spa", "es", "SPANISH", ("utf-8", "iso-8859-1"),
            ("El capitán del puerto", "La biblioteca municipal", "Nuestro mercado pequeño", "El tren de la noche",
             "Un taller muy antiguo", "La señora del molino"),
            ("abre de nuevo sus puertas", "fue pintado de verde en otoño", "vende más manzanas que pan",
             "espera la primera nieve", "contesta las cartas del extranjero"),
            ("antes de que suenen las campanas", "aunque nadie lo había pedido", "porque el río subió ayer",
             "mientras los vecinos miran", "y no cobra la entrada"),
        ),
        Language(
            "por", "pt-BR", "PORTUGUESE", ("utf-8", "iso-8859-1"),
            ("O capitão do porto", "A biblioteca da cidade", "O nosso mercado", "O trem da noite",
             "Uma oficina antiga"),
            ("abre as portas outra vez", "foi pintada de verde no verão", "vende mais maçãs do que pão",
             "espera a primeira geada", "responde às cartas do exterior"),
            ("antes que os sinos toquem ao meio-dia", "embora ninguém tenha pedido", "porque o rio subiu ontem",
             "enquanto os vizinhos olham", "e não cobra nada pela visita"),
        ),
        Language(
            "rus", "ru", "RUSSIAN", ("windows-1251", "utf-8", "koi8-r"),
            ("Начальник порта", "Городская библиотека", "Наш старый рынок", "Ночной поезд", "Маленькая мастерская"),
            ("снова открывает двери", "продаёт больше яблок, чем хлеба", "ждёт первого снега",
             "отвечает на письма из-за границы", "хранит старые карты сухими"),
            ("прежде чем в полдень зазвонят колокола", "хотя никто об этом не просил", "потому что вода поднялась",
             "пока соседи смотрят", "и не берёт платы за вход"),
        ),
        Language(
            "jpn", "ja", "Japanese", ("shift_jis", "utf-8", "euc-jp"),
            ("港の管理人は", "町の図書館は", "日曜日の市場は", "夜の列車は", "古い工房は"),
            ("もう一度扉を開き", "春に緑色に塗られ", "パンよりも多くのりんごを売り", "初雪を待ちながら"),
            ("正午の鐘を聞いています", "近所の人々を招いています", "川の水位を見守っています",
             "手紙に返事を書いています"),
            stop="。", space="",
        ),
        Language(
            "zho", "zh-CN", "Chinese", ("gb18030", "utf-8"),
            ("港口的负责人", "城里的图书馆", "我们的老市场", "夜间的火车", "那座旧磨坊"),
            ("再次打开了大门", "春天被刷成绿色", "卖出的苹果比面包还多", "正在等待第一场雪"),
            ("因为昨天河水上涨了", "虽然没有人提出要求", "而且参观不收任何费用", "邻居们都在旁边看着"),
            stop="。", space="",
        ),
        Language(
            "ell", "el", "GREEK", ("iso-8859-7", "utf-8"),
            ("Ο λιμενάρχης", "Η δημοτική βιβλιοθήκη", "Η παλιά αγορά", "Το νυχτερινό τρένο"),
            ("ανοίγει ξανά τις πόρτες", "βάφτηκε πράσινη την άνοιξη", "πουλάει περισσότερα μήλα από ψωμί"),
            ("πριν χτυπήσουν οι καμπάνες", "αν και κανείς δεν το ζήτησε", "επειδή το ποτάμι ανέβηκε χθες"),
        ),
    )
}  # fmt: skip

#: Names of charsets as Common Crawl's index writes them, by Python codec name.
INDEX_CHARSETS: dict[str, str] = {
    "utf-8": "UTF-8",
    "ascii": "US-ASCII",
    "iso-8859-1": "ISO-8859-1",
    "iso-8859-7": "ISO-8859-7",
    "windows-1252": "windows-1252",
    "windows-1251": "windows-1251",
    "koi8-r": "KOI8-R",
    "shift_jis": "Shift_JIS",
    "euc-jp": "EUC-JP",
    "gb18030": "GB18030",
}
