"""Every preset reads its set as it is distributed, and trains on it through the command line."""

from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import pytest
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertsmith.cli import main as cli
from bertsmith.errors import ConfigError, DivergenceError
from bertsmith.finetuning.settings import Settings
from bertsmith.jobs import finetune as job
from bertsmith.settings import changed
from bertsmith.tasks.answer_scores import score_answers, score_chinese
from bertsmith.tasks.kinds import make_task
from bertsmith.tasks.presets import GLUE, PRESETS, find_preset
from bertsmith.train import keeping
from bertsmith.train.speed import Peak
from finetuning.small_tasks import (
    questions,
    read_json_lines,
    write_conll,
    write_json_lines,
    write_lines,
    write_model,
    write_squad,
    write_table,
)

NLI, MNLI = ("entailment", "not_entailment"), ("contradiction", "entailment", "neutral")
QUOTED = 'he said " good'  # an odd quotation mark, as MRPC has
CHINESE = [("小", "B-PER"), ("明", "I-PER"), ("在", "O"), ("北", "B-LOC"), ("京", "I-LOC")]


def rows_of(header, changes, count=6):
    """Rows with something in each column; `changes` gives those that matter, by number."""
    return [[str(changes[name](n)) if name in changes else f"{name} {n}" for name in header] for n in range(count)]


def glue_table(path, header, changes, *, mark="", with_header=True):
    text = "\n".join("\t".join(row) for row in ([header] if with_header else []) + rows_of(header, changes))
    path.write_text(mark + text + "\n", encoding="utf-8")


def texts(first, second, label, labels):
    """Columns of a task on one or two texts."""
    columns = {first: lambda n: f"{QUOTED} {n}", label: lambda n: labels[n % len(labels)]}
    return columns | ({second: lambda n: f"the river was bad {n}"} if second else {})


def tagged_file(path, words):
    write_conll(path, [([word for word, _ in words], [tag for _, tag in words])] * 6)


def chinese_questions():
    asked = {"question": "谁在北京？", "answers": [{"text": "小明", "answer_start": 0}]}
    return [{"id": f"D{n}", "context": "小明在北京大学工作。", "qas": [{**asked, "id": f"D{n}_Q0"}]} for n in range(4)]


def write_swag(path):
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
    ends = 'is in rome.,"goes, fine.",was bad.,"says ""good""."'
    write_lines(path, [header] + [f'{n},v{n},{n},"s, {n}","anna, in paris.",She,gold,{ends},{n % 4}' for n in range(4)])


def write_openbook(path):
    choices = [
        {"text": text, "label": label} for text, label in zip(("rome", "paris", "oslo", "river"), "ABCD", strict=True)
    ]
    rows = [
        {"id": str(n), "question": {"stem": "where is anna", "choices": choices}, "answerKey": "ABCD"[n % 4]}
        for n in range(4)
    ]
    write_json_lines(path, rows)


MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
STSB = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score")
MNLI_COLUMNS = (
    "index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
    "sentence2_parse", "sentence1", "sentence2", "label1", "gold_label",
)  # fmt: skip
PAIR = ("index", "sentence1", "sentence2", "label")
SHORT_PAIR = PAIR[1:]
BIN = ("0", "1")
COLA = ("source", "label", "star", "text")
QQP = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
QNLI = ("index", "question", "sentence", "label")
ENGLISH = [("EU", "B-ORG"), ("rejects", "O"), ("German", "B-MISC"), ("Boris", "B-PER"), ("anna", "I-PER")]
CLUENER = {"text": "小明在北京", "label": {"name": {"小明": [[0, 1]]}, "address": {"北京": [[3, 4]]}}}
ENGLISH_LINES = [*(f"{word} NN B-NP {tag}" for word, tag in ENGLISH), ""]

WRITERS = {
    "cola": lambda p: glue_table(p, COLA, texts("text", None, "label", BIN), with_header=False),
    "sst2": lambda p: glue_table(p, ("sentence", "label"), texts("sentence", None, "label", BIN)),
    "mrpc": lambda p: glue_table(p, MRPC, texts("#1 String", "#2 String", "Quality", BIN), mark="\ufeff"),
    "stsb": lambda p: glue_table(p, STSB, texts("sentence1", "sentence2", "score", ("0.000", "2.5", "5.000"))),
    "qqp": lambda p: glue_table(p, QQP, texts("question1", "question2", "is_duplicate", BIN)),
    "mnli": lambda p: glue_table(p, MNLI_COLUMNS, texts("sentence1", "sentence2", "gold_label", MNLI)),
    "qnli": lambda p: glue_table(p, QNLI, texts("question", "sentence", "label", NLI)),
    "rte": lambda p: glue_table(p, PAIR, texts("sentence1", "sentence2", "label", NLI)),
    "wnli": lambda p: glue_table(p, PAIR, texts("sentence1", "sentence2", "label", BIN)),
    "squad1": lambda p: write_squad(p, questions(6)),
    "squad2": lambda p: write_squad(p, questions(6, unanswerable=2)),
    "swag": write_swag,
    "openbookqa": write_openbook,
    "conll2003": lambda p: write_lines(p, ["-DOCSTART- -X- -X- O", "", *ENGLISH_LINES * 4]),
    "chnsenticorp": lambda p: write_table(p, ("label", "text_a"), [("0", "今天很坏"), ("1", "今天很好")] * 3),
    "thucnews": lambda p: write_table(p, None, [(f"北京大学 {n}", ("game", "stocks")[n % 2]) for n in range(6)]),
    "lcqmc": lambda p: write_table(p, SHORT_PAIR, [("我在哪里", "你在哪里", n % 2) for n in range(6)]),
    "afqmc": lambda p: write_table(p, SHORT_PAIR, [("我在哪里", "你在哪里", n % 2) for n in range(6)]),
    "ocnli": lambda p: write_table(p, SHORT_PAIR, [("我在北京", "我在上海", MNLI[n % 3]) for n in range(6)]),
    "weibo": lambda p: tagged_file(p, CHINESE),
    "resume": lambda p: tagged_file(p, CHINESE),
    "cluener": lambda p: write_json_lines(p, [CLUENER] * 6),
    "cmrc2018": lambda p: write_squad(p, chinese_questions()),
}  # fmt: skip

# What the first example of each generated file on texts must be.
FIRST = {
    "cola": (f"{QUOTED} 0", None, "0"),
    "sst2": (f"{QUOTED} 0", None, "0"),
    "mrpc": (f"{QUOTED} 0", "the river was bad 0", "0"),
    "qqp": (f"{QUOTED} 0", "the river was bad 0", "0"),
    "mnli": (f"{QUOTED} 0", "the river was bad 0", "contradiction"),
    "qnli": (f"{QUOTED} 0", "the river was bad 0", "entailment"),
    "rte": (f"{QUOTED} 0", "the river was bad 0", "entailment"),
    "wnli": (f"{QUOTED} 0", "the river was bad 0", "0"),
    "stsb": (f"{QUOTED} 0", "the river was bad 0", "0.000"),
    "lcqmc": ("我在哪里", "你在哪里", "0"),
    "afqmc": ("我在哪里", "你在哪里", "0"),
    "ocnli": ("我在北京", "我在上海", "contradiction"),
    "thucnews": ("北京大学 0", None, "game"),
    "chnsenticorp": ("今天很坏", None, "0"),
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """The files of every preset under the names that it has for them, and a model."""
    folder = tmp_path_factory.mktemp("sets")
    write_model(folder / "model")
    for name, write in WRITERS.items():
        for file in PRESETS[name].files:
            path = folder / "sets" / (PRESETS[name].folder or name) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)
    return folder


def data_of(sets, name):
    return sets / "sets" / (PRESETS[name].folder or name)


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setattr(keeping, "measure_peak", lambda *given, **named: Peak(1e11, "none"))
    monkeypatch.setitem(sys.modules, "bertsmith.report.finetuning", SimpleNamespace(write_report=lambda folder: None))

    def call(*words):
        code = cli.run([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


def test_there_is_a_file_for_every_preset():
    assert set(WRITERS) == set(PRESETS)
    assert set(GLUE) == {"mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte", "wnli"}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_sound_and_trains_a_step_through_the_command_line(sets, run, tmp_path, name):
    preset = find_preset(name)
    task = make_task(preset.kind, preset.options)
    settings = changed(Settings(), preset.settings)
    assert settings.epochs in (2, 3, 4)
    assert settings.batch.size in (16, 32, 48)
    assert set(preset.reported) <= set(task.metrics)
    assert task.options.metric in preset.reported
    code, out, err = run(
        "finetune", sets / "model", "--preset", name, "--data", data_of(sets, name), "--output", tmp_path / "run",
        "--max-length", 48, "--epochs", 1, "--json",
    )  # fmt: skip
    assert (code, err.count("Traceback")) == (0, 0), err
    found = json.loads(out)
    assert found["steps"] == 1
    assert found["metric"] == task.options.metric
    assert set(preset.reported) <= set(found["scores"])
    assert f"{name}: " in err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["preset"], config["options"]["max_length"]) == (name, 48)
    assert (name in FIRST) == (preset.kind in ("classify", "regress"))
    if name in FIRST:
        example = next(iter(task.read(str(data_of(sets, name) / preset.files[0]))))
        assert (example.text, example.pair, example.label) == FIRST[name]
    assert_scored(sets, name, tmp_path / "run", found["scores"])


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.kind in ("tag", "answer")])
def test_presets_of_spans_learn_and_are_scored_by_what_they_learned(sets, run, tmp_path, name):
    """After one step they find nothing, and every scorer says 0."""
    code, out, err = run(
        "finetune", sets / "model", "--preset", name, "--data", data_of(sets, name), "--output", tmp_path / "run",
        "--max-length", 48, "--epochs", 30, "--rate", 5e-3, "--batch-size", 2, "--set", "evaluation.every=1000",
        "--json",
    )  # fmt: skip
    assert code == 0, err
    scores = json.loads(out)["scores"]
    assert all(scores[each] > 0.5 for each in PRESETS[name].reported), scores
    assert_scored(sets, name, tmp_path / "run", scores)


def assert_scored(sets, name, folder, scores):
    """The scores of a run are those of its predictions on the dev file."""
    preset = PRESETS[name]
    task = make_task(preset.kind, preset.options)
    examples = list(task.read(str(data_of(sets, name) / preset.files[1])))
    measures = measured(name, examples, read_json_lines(folder / "predictions.jsonl"))
    assert {each: scores[each] for each in preset.reported} == pytest.approx(
        {each: measures[each] for each in preset.reported}
    )


def measured(name, examples, predictions):
    """The scores of predictions by other libraries; those of answers by our functions of the official rules."""
    kind = PRESETS[name].kind
    if kind == "classify":
        golds, said = [str(example.label) for example in examples], [each["label"] for each in predictions]
        f1 = f1_score(golds, said, pos_label="1", zero_division=0) if set(golds) == set(BIN) else None
        return {"accuracy": accuracy_score(golds, said), "f1": f1, "matthews": matthews_corrcoef(golds, said)}
    if kind == "regress":
        golds, said = [float(example.label) for example in examples], [each["value"] for each in predictions]
        return {"pearson": pearsonr(golds, said).statistic, "spearman": spearmanr(golds, said).statistic}
    if kind == "choose":
        return {"accuracy": accuracy_score([each.label for each in examples], [each["choice"] for each in predictions])}
    if kind == "tag":
        return {"f1": entity_f1([list(each.tags) for each in examples], [each["tags"] for each in predictions])}
    golds = {
        each["id"]: [answer.text for answer in one.answers] for one, each in zip(examples, predictions, strict=True)
    }
    score = score_chinese if name == "cmrc2018" else score_answers
    found = score(golds, {each["id"]: each["answer"] for each in predictions})
    return {"f1": found.f1, "exact_match": found.exact_match}


def test_the_papers_settings():
    for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"):
        task = make_task(PRESETS[name].kind, PRESETS[name].options)
        assert (task.options.max_length, PRESETS[name].settings) == (128, {"epochs": 3, "batch.size": 32})
    squad = make_task("answer", PRESETS["squad1"].options).options
    assert (squad.max_length, squad.stride, squad.max_question, squad.max_answer, squad.num_best) == (
        384,
        128,
        64,
        30,
        20,
    )
    assert not squad.unanswerable
    assert make_task("answer", PRESETS["squad2"].options).options.unanswerable
    assert PRESETS["squad1"].settings == {"epochs": 3, "batch.size": 32, "optimizer.rate": 5e-5}
    assert PRESETS["squad2"].settings == {"epochs": 2, "batch.size": 48, "optimizer.rate": 5e-5}
    assert PRESETS["swag"].settings == {"epochs": 3, "batch.size": 16, "optimizer.rate": 2e-5}
    assert PRESETS["mrpc"].reported == PRESETS["qqp"].reported == ("f1", "accuracy")
    assert PRESETS["stsb"].reported == ("pearson", "spearman")
    assert PRESETS["cola"].reported == ("matthews",)
    assert make_task("answer", PRESETS["cmrc2018"].options).options.language == "zh"


def test_presets_read_what_only_they_have(sets):
    def first(name):
        preset = PRESETS[name]
        return next(iter(make_task(preset.kind, preset.options).read(str(data_of(sets, name) / preset.files[0]))))

    swag = first("swag")
    assert swag.text == "anna, in paris."
    assert swag.choices == ("She is in rome.", "She goes, fine.", "She was bad.", 'She says "good".')
    assert swag.label == 0
    book = first("openbookqa")
    assert (book.text, book.choices, book.label) == ("where is anna", ("rome", "paris", "oslo", "river"), 0)
    conll = first("conll2003")
    assert list(zip(conll.words, conll.tags, strict=True)) == ENGLISH
    assert conll.document == 1
    assert first("weibo").text == first("cluener").text == "小明在北京"
    assert first("cluener").tags == ("B-name", "I-name", "O", "B-address", "I-address")
    assert first("cmrc2018").answers[0].text == "小明"
    assert first("squad2").answers == ()


def test_a_preset_finds_its_files_also_where_they_are_of_another_kind(sets, run, tmp_path):
    """CLUE has its pairs as JSON lines, others have them as TSV; and OCNLI has pairs that nobody could label."""
    rows = [
        {"sentence1": "我在北京", "sentence2": "我在上海", "label": label} for label in ("neutral", "-", "entailment")
    ]
    for name in ("train.json", "dev.json"):
        write_json_lines(tmp_path / name, rows)
    assert PRESETS["ocnli"].find(tmp_path) == (tmp_path / "train.json", tmp_path / "dev.json")
    assert PRESETS["mrpc"].find(tmp_path / "none") == (tmp_path / "none" / "train.tsv", tmp_path / "none" / "dev.tsv")
    (tmp_path / "MRPC").mkdir()
    for name in ("train.tsv", "validation.jsonl"):
        (tmp_path / "MRPC" / name).touch()
    inside = (tmp_path / "MRPC" / "train.tsv", tmp_path / "MRPC" / "validation.jsonl")
    assert PRESETS["mrpc"].find(tmp_path) == PRESETS["mrpc"].find(tmp_path / "MRPC") == inside
    (other := tmp_path / "other").mkdir()
    for name in ("validation.csv", "validation_matched.tsv", "validation_mismatched.tsv"):
        (other / name).touch()
    assert PRESETS["swag"].find(other)[1].name == "validation.csv"
    assert PRESETS["mnli"].find(other)[1].name == "validation_matched.tsv"
    assert PRESETS["mnli"].find_second(other).name == "validation_mismatched.tsv"
    (other / "validation.csv").unlink()
    assert [path.name for path in PRESETS["cmrc2018"].find(other)] == ["train.json", "dev.json"]  # named, if not there
    for name in ("cmrc2018_train.json", "cmrc2018_dev.json", "cmrc2018_trial.json"):
        (other / name).touch()
    assert [path.name for path in PRESETS["cmrc2018"].find(other)] == ["cmrc2018_train.json", "cmrc2018_dev.json"]
    code, _, err = run(
        "finetune", sets / "model", "--preset", "ocnli", "--data", tmp_path, "--output", tmp_path / "run",
        "--epochs", 1, "--max-length", 48,
    )  # fmt: skip
    assert code == 0, err
    for name in ("train.json", "dev.json"):
        assert f"{tmp_path / name}: 1 rows are left out: broken, or labelled -" in err
    assert len((tmp_path / "run" / "predictions.jsonl").read_text().splitlines()) == 2


def test_an_unknown_preset_lists_those_that_are():
    with pytest.raises(ConfigError, match="preset: 'sst3' is not one of afqmc, chnsenticorp, "):
        find_preset("sst3")


def test_glue_runs_every_task_that_it_finds_and_names_those_in_the_average(sets, run, tmp_path):
    """MNLI is not there; WNLI is, but does not count."""
    glue = tmp_path / "glue"
    glue.mkdir()
    for name in GLUE:
        if name not in ("mnli", "qqp"):
            (glue / PRESETS[name].folder).symlink_to(data_of(sets, name))
    given = [
        "glue",
        sets / "model",
        "--data",
        glue,
        "--output",
        tmp_path / "run",
        "--epochs",
        1,
        "--set",
        "task.max_length=48",
    ]
    code, out, err = run(*given, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert list(found["tasks"]) == ["qnli", "sst2", "cola", "stsb", "mrpc", "rte", "wnli"]
    assert found["missing"] == ["mnli", "qqp"]
    assert found["averaged"] == ["qnli", "sst2", "cola", "stsb", "mrpc", "rte"]
    scores = found["tasks"]
    assert set(scores["mrpc"]) == {"f1", "accuracy"}
    figures = [sum(scores[name].values()) / len(scores[name]) for name in found["averaged"]]
    assert found["average"] == pytest.approx(sum(figures) / 6)
    for name in scores:
        stored = json.loads((tmp_path / "run" / name / "result.json").read_text())["scores"]
        assert {metric: stored[metric] for metric in scores[name]} == scores[name]
    code, out, err = run(*given)
    assert (code, out) == (2, "")
    assert err == f"bertsmith: {tmp_path / 'run'}: exists already; go on with --resume, or name a new folder\n"
    code, out, err = run(*given, "--resume")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "task\tscore\t"
    assert lines[1].startswith("qnli\taccuracy\t")
    assert any(line.startswith("mrpc\tf1 / accuracy\t") for line in lines)
    assert lines[-2] == f"average of qnli, sst2, cola, stsb, mrpc, rte: {100 * found['average']:.1f}%"
    assert lines[-1] == "without a train or a dev file: mnli, qqp"
    code, _, err = run("glue", sets / "model", "--data", tmp_path, "--output", tmp_path / "other")
    assert code == 2
    assert err.startswith(f"bertsmith: {tmp_path}: no task of GLUE is here; expected folders such as {tmp_path}/MRPC")
    assert not (tmp_path / "other").exists()


def test_glue_refuses_an_empty_file_before_any_task_is_trained(sets, run, tmp_path):
    for name in ("sst2", "rte"):
        shutil.copytree(data_of(sets, name), tmp_path / "glue" / PRESETS[name].folder)
    empty = tmp_path / "glue" / "RTE" / "dev.tsv"
    empty.write_text(empty.read_text().splitlines(keepends=True)[0])
    code, _, err = run("glue", sets / "model", "--data", tmp_path / "glue", "--output", tmp_path / "run")
    assert (code, f"{empty}, line 1: holds no example" in err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_glue_reads_every_file_first_scores_both_halves_of_mnli_and_leaves_out_broken_rows_of_qqp(sets, run, tmp_path):
    glue = tmp_path / "glue"
    for name in ("mnli", "qqp"):
        shutil.copytree(data_of(sets, name), glue / PRESETS[name].folder)
    rows = (glue / "MNLI" / "dev_matched.tsv").read_text()
    (glue / "MNLI" / "dev_mismatched.tsv").write_text(rows.replace("\tentailment\n", "\tneutral\n"))
    with (glue / "QQP" / "train.tsv").open("a") as file:
        file.write("7\t8\tcut off\n")
    given = ("glue", sets / "model", "--data", glue, "--epochs", 1, "--set", "task.max_length=48", "--json", "--output")
    code, out, err = run(*given, tmp_path / "run")
    assert code == 0, err
    assert f"{glue / 'QQP' / 'train.tsv'}: 1 rows are left out: broken, or labelled -" in err
    scores = json.loads(out)["tasks"]["mnli"]
    assert list(scores) == ["accuracy", "accuracy_mm"]
    said = [json.loads(line)["label"] for line in (tmp_path / "run/mnli/predictions.jsonl").read_text().splitlines()]
    right = [line.rsplit("\t", 1)[1].replace("entailment", "neutral") for line in rows.splitlines()[1:]]
    assert scores["accuracy_mm"] == pytest.approx(sum(map(str.__eq__, said, right)) / len(right))
    for line in (b"\xff\n", b"1\t2\t3\tthe\triver\tmaybe\n"):
        whole = (glue / "QQP" / "dev.tsv").read_bytes()
        (glue / "QQP" / "dev.tsv").write_bytes(whole + line)
        code, _, err = run(*given, tmp_path / "other")
        (glue / "QQP" / "dev.tsv").write_bytes(whole)
        assert (code, err.count("\n")) == (2, 1)
        assert f"{glue / 'QQP' / 'dev.tsv'}, line {len(whole.splitlines()) + 1}: " in err
        assert not (tmp_path / "other").exists()
    (glue / "MNLI" / "dev_mismatched.tsv").rename(glue / "MNLI" / "dev_mismatched.txt")
    assert PRESETS["mnli"].find_second(glue / "MNLI") == glue / "MNLI" / "dev_mismatched.txt"
    assert PRESETS["qqp"].find_second(glue / "QQP") is None


def test_a_task_of_glue_whose_loss_is_not_finite_does_not_cost_the_others(sets, run, tmp_path, monkeypatch):
    for name in ("sst2", "rte"):
        shutil.copytree(data_of(sets, name), tmp_path / "glue" / PRESETS[name].folder)
    real = job.finetune

    def finetune(request, folder, **more):
        if request.preset in failing:
            raise DivergenceError("the loss is not finite")
        return real(request, folder, **more)

    monkeypatch.setattr("bertsmith.jobs.glue.finetune", finetune)
    given = ("glue", sets / "model", "--data", tmp_path / "glue", "--output", tmp_path / "run")
    given += ("--epochs", 1, "--set", "task.max_length=48")
    failing = ["sst2", "rte"]
    code, _, err = run(*given)
    assert (code, "no run came to its end: the loss was not finite" in err) == (1, True)
    failing = ["sst2"]
    code, out, err = run(*given)
    assert (code, "the loss is not finite" in err) == (0, True)
    assert out.splitlines()[1].startswith("rte\taccuracy\t")
    assert out.splitlines()[-1] == "the loss was not finite: sst2"
    found = json.loads(run(*given, "--resume", "--json")[1])
    assert (list(found["tasks"]), found["averaged"], found["failed"]) == (["rte"], ["rte"], ["sst2"])
