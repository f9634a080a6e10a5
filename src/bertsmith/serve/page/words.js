/**
 * The page's words in English and Chinese, and elements that follow the reader's language.
 * `{name}` in a sentence is replaced by a value.
 */
const ENGLISH = {
  skip: "Skip to the content",
  model: "Model",
  language: "Language",
  theme: "Colours",
  "theme-auto": "Automatic",
  "theme-light": "Light",
  "theme-dark": "Dark",
  tabs: "What to do",
  about: "{kind}, {layers} layers, {heads} heads, width {width}; reads up to {length} pieces",
  run: "Run",
  "run-hint": "or Ctrl + Enter",
  working: "Working…",
  optional: "{label} (optional)",
  "text-label": "Text",
  "pair-label": "Second text",
  "token-label": "This server asks for a token",
  "token-use": "Use it",
  "token-hint": "It is kept until this browser tab is closed.",
  retry: "Try again",

  "fault-token": "The server asks for a token, or did not accept the one it got. Enter it at the top of the page.",
  "fault-missing": "The server has no such model or address.",
  "fault-slow": "The server took too long. Try a shorter text.",
  "fault-long": "That is too long for this server. Try a shorter text.",
  "fault-input": "The server cannot use this input.",
  "fault-busy": "The server is busy. Try again in a moment.",
  "fault-busy-seconds": "The server is busy. Try again in {seconds} s.",
  "fault-network": "The server does not answer. Is it still running?",
  "fault-answer": "The server's answer could not be read.",
  "fault-other": "Something went wrong on the server.",
  "fault-page": "Something went wrong on this page: {detail}",
  "no-models": "The server has no model loaded.",
  "empty-text": "Write something first.",

  "tab-fill": "Fill in",
  "title-fill": "Fill in the blank",
  "explain-fill": "Click words to hide them. The model says what could stand there.",
  "words-label": "Words; press one to hide or show it",
  "hide-word": "Hide “{word}”",
  "show-gap": "Gap {number}: show the word again",
  "no-gap": "Nothing is hidden yet: click a word above.",
  "gap-title": "Gap {number}",
  "put-in": "Put in “{token}”, {share}",
  "sum-fill": "Most likely: {found}",

  "tab-classify": "Classify",
  "title-classify": "Classify a text",
  "explain-classify": "What the model takes the text for, or how it rates it.",
  "sum-classify": "{label}, {share}",
  "sum-regress": "The model's value is {value}",
  "classes-title": "All classes",

  "tab-entities": "Entities",
  "title-entities": "Find entities",
  "explain-entities": "Names and other things that the model was taught to find, marked in the text.",
  "sum-entities": "{count} found",
  "sum-entities-1": "1 found",
  "no-entities": "Nothing was found in this text.",
  "column-entity": "Entity",
  "column-kind": "Kind",
  "column-score": "Score",
  "entities-title": "Entities found",

  "tab-answer": "Ask",
  "title-answer": "Ask a text",
  "explain-answer": "The answer is a piece of the text, never anything else.",
  "question-label": "Question",
  "context-label": "Text to read",
  "sum-answer": "{answer} ({share})",
  "no-answer": "The text does not say, the model thinks.",
  "candidates-title": "Best answers; press one to see it in the text",
  "null-margin": "Score of “no answer” minus that of the best answer: {margin}",

  "tab-choose": "Choose",
  "title-choose": "Choose among several",
  "explain-choose": "Which of the choices goes with the text.",
  "choices-label": "Choices, one a line",
  "choices-title": "All choices",
  "two-choices": "Write at least two choices, one a line.",

  "tab-compare": "Compare",
  "title-compare": "Compare sentences",
  "explain-compare": "How alike the sentences' vectors are: 1 is the same direction, 0 has nothing in common.",
  "sentences-label": "Sentences, one a line",
  "two-sentences": "Write at least two sentences, one a line.",
  "many-sentences": "At most {limit} sentences at a time.",
  "sum-compare": "Most alike: {first} and {second} ({score})",
  "matrix-title": "Similarity of each sentence with each other",
  "column-sentence": "Sentence",

  "tab-neighbours": "Neighbours",
  "title-neighbours": "Neighbours of a word",
  "explain-neighbours":
    "The pieces whose vectors are nearest to the word's in the table that the model begins with, before any context.",
  "word-label": "Word",
  "sum-neighbours": "Nearest: {word} ({score})",
  "neighbours-title": "Nearest pieces",

  "tab-attention": "Attention",
  "title-attention": "What each word looks at",
  "explain-attention":
    "Lines go from the word that looks (left) to the words it looks at (right). Point at a word, or use the arrow " +
    "keys, for its numbers.",
  layer: "Layer",
  head: "Head",
  "all-heads": "Mean of all",
  "lines-title": "Lines between words",
  "looking-label": "Words that look",
  "looked-label": "Words that are looked at",
  "overview-title": "All heads",
  "overview-hint":
    "One square for each layer (down) and head (across); rows look at columns. Click one to see its lines.",
  "head-name": "Layer {layer}, head {head}",
  "mean-name": "Layer {layer}, mean of all heads",
  "sum-attention": "{place}: “{from}” looks at “{to}” most ({share})",
  "table-title": "As a table",
  "table-caption": "{place}: what each word looks at most",
  "column-word": "Word",
  "column-looks": "Looks at",

  "tab-pieces": "Pieces",
  "title-pieces": "How a text becomes pieces",
  "explain-pieces": "Each piece enters the model as the sum of three vectors, as in figure 2 of the BERT paper.",
  "sum-pieces": "{count} pieces; the model reads up to {length}",
  "row-input": "Input",
  "row-token": "Token",
  "row-segment": "Segment",
  "row-position": "Position",
  "too-many-pieces": "The model reads only the first {length} of these.",
  "piece-name": "{piece}: number {id}, segment {segment}, position {position}",
  "pieces-title": "Pieces in order",
};

const CHINESE = {
  skip: "跳到正文",
  model: "模型",
  language: "语言",
  theme: "配色",
  "theme-auto": "自动",
  "theme-light": "浅色",
  "theme-dark": "深色",
  tabs: "功能",
  about: "{kind}，{layers} 层，{heads} 个注意力头，宽度 {width}；最多读 {length} 个词元",
  run: "运行",
  "run-hint": "或按 Ctrl + Enter",
  working: "正在计算…",
  optional: "{label}（可选）",
  "text-label": "文本",
  "pair-label": "第二段文本",
  "token-label": "此服务器需要令牌",
  "token-use": "使用",
  "token-hint": "令牌只保存到关闭此标签页为止。",
  retry: "重试",

  "fault-token": "服务器需要令牌，或未接受所给的令牌。请在页面上方输入。",
  "fault-missing": "服务器上没有这个模型或地址。",
  "fault-slow": "服务器用时过长。请缩短文本再试。",
  "fault-long": "文本太长，服务器不接受。请缩短后再试。",
  "fault-input": "服务器无法处理此输入。",
  "fault-busy": "服务器正忙，请稍后再试。",
  "fault-busy-seconds": "服务器正忙，请在 {seconds} 秒后再试。",
  "fault-network": "服务器没有回应。它还在运行吗？",
  "fault-answer": "无法读取服务器的回答。",
  "fault-other": "服务器出错了。",
  "fault-page": "页面出错了：{detail}",
  "no-models": "服务器没有加载任何模型。",
  "empty-text": "请先输入内容。",

  "tab-fill": "填空",
  "title-fill": "完形填空",
  "explain-fill": "点击词语将其遮住，模型会猜那里可以填什么。",
  "words-label": "词语；按下可遮住或恢复",
  "hide-word": "遮住“{word}”",
  "show-gap": "空格 {number}：恢复原词",
  "no-gap": "还没有遮住任何词：请点击上面的词语。",
  "gap-title": "空格 {number}",
  "put-in": "填入“{token}”，{share}",
  "sum-fill": "最可能：{found}",

  "tab-classify": "分类",
  "title-classify": "文本分类",
  "explain-classify": "模型把这段文本归为哪一类，或给它打多少分。",
  "sum-classify": "{label}，{share}",
  "sum-regress": "模型给出的数值是 {value}",
  "classes-title": "全部类别",

  "tab-entities": "实体",
  "title-entities": "实体识别",
  "explain-entities": "在文本中标出模型学会寻找的人名、地名等。",
  "sum-entities": "找到 {count} 个",
  "sum-entities-1": "找到 1 个",
  "no-entities": "这段文本中没有找到实体。",
  "column-entity": "实体",
  "column-kind": "类型",
  "column-score": "得分",
  "entities-title": "找到的实体",

  "tab-answer": "问答",
  "title-answer": "向文本提问",
  "explain-answer": "答案一定是文本中的一段原文。",
  "question-label": "问题",
  "context-label": "阅读文本",
  "sum-answer": "{answer}（{share}）",
  "no-answer": "模型认为文本中没有答案。",
  "candidates-title": "最佳答案；按下可在文本中查看",
  "null-margin": "“无答案”与最佳答案的分差：{margin}",

  "tab-choose": "选择",
  "title-choose": "选择题",
  "explain-choose": "哪个选项与文本最相配。",
  "choices-label": "选项，每行一个",
  "choices-title": "全部选项",
  "two-choices": "请至少写两个选项，每行一个。",

  "tab-compare": "比较",
  "title-compare": "比较句子",
  "explain-compare": "句子向量有多相近：1 表示方向相同，0 表示毫无共同之处。",
  "sentences-label": "句子，每行一个",
  "two-sentences": "请至少写两个句子，每行一个。",
  "many-sentences": "一次最多 {limit} 个句子。",
  "sum-compare": "最相近：第 {first} 句与第 {second} 句（{score}）",
  "matrix-title": "句子两两之间的相似度",
  "column-sentence": "句子",

  "tab-neighbours": "近邻",
  "title-neighbours": "词的近邻",
  "explain-neighbours": "在模型最初的词向量表中（尚无上下文），与该词的向量最接近的词元。",
  "word-label": "词",
  "sum-neighbours": "最接近：{word}（{score}）",
  "neighbours-title": "最接近的词元",

  "tab-attention": "注意力",
  "title-attention": "每个词在看什么",
  "explain-attention": "线条从正在看的词（左）连到被看的词（右）。指向一个词，或用方向键，可看到数值。",
  layer: "层",
  head: "头",
  "all-heads": "全部平均",
  "lines-title": "词与词之间的连线",
  "looking-label": "正在看的词",
  "looked-label": "被看的词",
  "overview-title": "所有注意力头",
  "overview-hint": "每个方格是一层（纵）的一个头（横）；格内的行看向列。点击即可查看它的连线。",
  "head-name": "第 {layer} 层，第 {head} 个头",
  "mean-name": "第 {layer} 层，全部头的平均",
  "sum-attention": "{place}：“{from}”看“{to}”最多（{share}）",
  "table-title": "以表格显示",
  "table-caption": "{place}：每个词看得最多的词",
  "column-word": "词",
  "column-looks": "看向",

  "tab-pieces": "词元",
  "title-pieces": "文本如何变成词元",
  "explain-pieces": "每个词元以三个向量之和进入模型，如 BERT 论文图 2 所示。",
  "sum-pieces": "{count} 个词元；模型最多读 {length} 个",
  "row-input": "输入",
  "row-token": "词元",
  "row-segment": "片段",
  "row-position": "位置",
  "too-many-pieces": "模型只读其中的前 {length} 个。",
  "piece-name": "{piece}：编号 {id}，片段 {segment}，位置 {position}",
  "pieces-title": "依次排列的词元",
};

export const WORDS = { en: ENGLISH, zh: CHINESE };

let current = "en";
const bound = new WeakMap(); // element -> attribute ("" is its text) -> { key, values }

/** The reader's language: "en" or "zh". */
export function language() {
  return current;
}

/** A sentence. A value that is a function is asked when the sentence is made, so that it can be a sentence too. */
export function say(key, values = {}) {
  const sentence = WORDS[current][key] ?? key;
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name];
    return typeof value === "function" ? value() : String(value ?? whole);
  });
}

/** Let an element's text, or one of its attributes, be a sentence in whatever language the reader chooses. */
export function bind(element, key, values = {}, attribute = "") {
  const notes = bound.get(element) ?? {};
  notes[attribute] = { key, values };
  bound.set(element, notes);
  element.dataset.say = notes[""]?.key ?? "";
  write(element, notes);
}

/** Change the language of the whole page. */
export function setLanguage(code) {
  current = code;
  document.documentElement.lang = code === "zh" ? "zh-Hans" : "en";
  for (const element of document.querySelectorAll("[data-say]")) {
    if (!bound.has(element)) bind(element, element.dataset.say); // those of index.html
    write(element, bound.get(element));
  }
}

function write(element, notes) {
  for (const [attribute, { key, values }] of Object.entries(notes)) {
    if (attribute) element.setAttribute(attribute, say(key, values));
    else element.textContent = say(key, values);
  }
}

/** The lines of a field that are not empty. */
export const lines = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** 0.4128 as 41.3%, and what would be 0.0% as <0.1%. */
export function percent(share) {
  return share > 0 && share < 0.0005 ? "<0.1%" : `${(100 * share).toFixed(1)}%`;
}

/** A number with two decimals, and a minus that is as wide as a plus. */
export function decimal(number) {
  const text = number.toFixed(2);
  return Number(text) === 0 ? "0.00" : text.replace("-", "−");
}
