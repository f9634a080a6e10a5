/**
 * Texts to begin with, in a language that the model can read. What it can read is asked of its tokenizer: a
 * vocabulary without Chinese turns a Chinese sentence into unknown pieces, one without English cuts words to bits.
 */
import { ask } from "./server.js";
import { language } from "./words.js";

const PROBES = {
  zh: "他们今天在北京学习新的知识",
  en: "our neighbours remembered a beautiful mountain village yesterday",
  letters: "E V Q L S G",
};
const readings = new Map(); // the model's name -> a promise of what it reads

const ENGLISH = {
  fill: "The capital of [MASK] is Paris.",
  classify: "A warm and funny film, and not a minute too long.",
  entities: "Marie Curie was born in Warsaw and worked in Paris with her husband Pierre.",
  question: "Where was Marie Curie born?",
  context:
    "Marie Curie was born in Warsaw in 1867. She moved to Paris in 1891 to study physics, and shared the " +
    "Nobel Prize in 1903 with her husband Pierre.",
  choose: "It began to rain as we left the house.",
  choices: "So we went back for an umbrella.\nSo we painted the fence blue.\nSo the umbrella was delicious.",
  compare:
    "A cat is asleep on the sofa.\nA kitten naps on the couch.\nThe stock market fell sharply today.\n" +
    "Shares lost much of their value.\nHow do I bake bread?",
  attention: "The animal didn't cross the street because it was too tired.",
  neighbours: "river",
  pieces: "My dog is cute.",
  piecesPair: "He likes playing.",
};

const CHINESE = {
  fill: "中国的首都是[MASK]京。",
  classify: "这部电影温暖又有趣，一分钟都不嫌长。",
  entities: "鲁迅生于浙江绍兴，后来在北京大学教书。",
  question: "鲁迅生于哪里？",
  context: "鲁迅1881年生于浙江绍兴，1902年赴日本留学，后来在北京大学教书，1936年在上海去世。",
  choose: "我们出门时开始下雨了。",
  choices: "所以我们回去拿伞。\n所以我们把墙刷成蓝色。\n所以雨伞很好吃。",
  compare: "小猫在沙发上睡觉。\n一只猫正在长椅上打盹。\n今天股市大跌。\n股票价格下降了很多。\n怎样烤面包？",
  attention: "小狗没有过马路，因为它太累了。",
  neighbours: "狗",
  pieces: "我的小狗很可爱。",
  piecesPair: "它喜欢玩。",
};

// For vocabularies of single letters, as those of proteins are: the beginnings of antibodies.
const LETTERS = {
  ...ENGLISH,
  fill: "E V Q L V E S G G G L V Q P G G S L R L [MASK] C A A S",
  compare: "E V Q L V E S G G G L V Q P G G\nQ V Q L V Q S G A E V K K P G A\nD I Q M T Q S P S S L S A S V G",
  attention: "E V Q L V E S G G G L V Q P G G",
  neighbours: "E",
  pieces: "E V Q L V E S",
  piecesPair: "D I Q M T Q S",
};

const TEXTS = { en: ENGLISH, zh: CHINESE, letters: LETTERS };

/** The texts for a model: in the reader's language where the model reads it, else in one that it does. */
export async function examplesFor(model) {
  if (!readings.has(model.name)) {
    const reads = probe(model);
    readings.set(model.name, reads);
    reads.catch(() => readings.delete(model.name)); // asked again when the server answers
  }
  const reads = await readings.get(model.name);
  return TEXTS[[language(), "en", "zh", "letters"].find((name) => reads[name]) ?? "en"];
}

async function probe(model) {
  if (model.labels.some((label) => /\p{Script=Han}/u.test(label))) return { zh: true };
  const body = { inputs: Object.values(PROBES), model: model.name, add_special_tokens: false };
  const [zh, en, letters] = await ask("tokenize", body);
  const known = (tokens) => tokens.every((token) => token.text !== "[UNK]");
  const whole = en.length <= 1.5 * PROBES.en.split(" ").length;
  return { zh: known(zh), en: known(en) && (whole || !known(zh)), letters: known(letters) };
}
