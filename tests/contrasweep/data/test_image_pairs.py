"""Lists of image pairs as people write them: what may be left empty, and the line and rule of what is wrong."""

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from contrasweep.data import open_dataset, resolve, stage
from contrasweep.data.manifest import MANIFEST
from contrasweep.errors import DataError, SpecError


@pytest.fixture
def folder(tmp_path):
    """Four pairs of 16 x 16 colour images, and one of grey ones."""
    random = np.random.RandomState(3)
    for side in ("a", "b"):
        for i in range(4):
            pixels = random.randint(0, 256, (16, 16, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{side}{i}.png")
        Image.fromarray(pixels[..., 0]).save(tmp_path / f"{side}grey.png")
        Image.fromarray(pixels[:8]).save(tmp_path / f"{side}low.png")
    return tmp_path


def pairs(folder, text, encoding="utf-8", to="staged", **settings):
    (folder / "pairs.csv").write_text(text, encoding=encoding)
    return stage("image-pairs", str(folder / to), source=folder / "pairs.csv", settings=settings)


def rows(folder, manifest, split="train"):
    """Its columns other than arrays."""
    part = open_dataset(manifest.with_folds(None)).split(split)
    return {n: part.column(n).to_pylist() for n in part.split.names if n not in manifest.columns}


def test_a_list_that_excel_saved_is_read(folder):
    """UTF-8 with a byte-order mark: the first column's name begins with it."""
    manifest = pairs(
        folder, "pre,post,label\r\na0.png,b0.png,0\r\na1.png,b1.png,1\r\n", "utf-8-sig"
    )
    assert manifest.counts["train"]["classes"] == [1, 1]


def test_anybodys_pairs_have_the_name_of_their_folder(folder):
    text = "pre,post,label\na0.png,b0.png,0\na1.png,b1.png,1\n"
    assert pairs(folder, text, to="datasets/streets").name == "streets"
    assert resolve("streets", folds=2, storage=str(folder)).name == "streets"
    assert (
        pairs(folder, text, to="datasets/image-pairs-size-8", size=8).name == "image-pairs?size=8"
    )


def test_a_misspelt_column_and_equal_pairs_are_said(folder, caplog):
    """Both flatter every method: folds part scenes without a `group`, and pairs that are listed twice."""
    text = "pre,post,label,grp,\na0.png,b0.png,0,x,\na1.png,b1.png,1,x,\na0.png,b0.png,0,y,\n"
    pairs(folder, text, to="misspelt")
    assert "pairs.csv: not used: the columns grp; used are pre, post, label, x, y" in caplog.text
    caplog.clear()
    manifest = pairs(folder, text.replace("grp", "group"), to="grouped")
    assert manifest.source["copies"] == {"within": 1}
    assert "equal to one before them in every pixel: 1 within; folds may part" in caplog.text
    assert "not used" not in caplog.text


def test_a_split_is_known_in_capitals_and_with_blanks(folder):
    text = (
        "pre,post,label,split\na0.png,b0.png,0,Train\na1.png,b1.png,1, train \na2.png,b2.png,1,TEST\n"
        "a3.png,b3.png,0,North\n"
    )
    manifest = pairs(folder, text)
    assert {name: manifest.rows(name) for name in manifest.splits} == {
        "train": 2,
        "test": 1,
        "North": 1,
    }
    without = pairs(folder, text.replace("TEST", "Val"), to="other")
    assert set(without.splits) == {"train", "test", "North"}, "that of validation takes its place"


def test_rows_of_a_test_split_need_no_fold(folder):
    text = "pre,post,label,fold,split\na0.png,b0.png,0,0,\na1.png,b1.png,1,1,train\na2.png,b2.png,1,,test\n"
    manifest = pairs(folder, text)
    assert rows(folder, manifest)["fold"] == [0, 1]
    assert rows(folder, manifest, "test")["fold"] == [None]
    for fold in (0, 1):
        assert open_dataset(manifest).parts(fold)[1].column("fold").to_pylist() == [fold]


def test_rows_without_a_group_are_groups_of_their_own(folder):
    """When the manifest counts groups and when folds are assigned."""
    text = "pre,post,label,group\na0.png,b0.png,0,\na1.png,b1.png,0,\na2.png,b2.png,0,g\na3.png,b3.png,0,g\n"
    assert pairs(folder, text, to="datasets/streets").counts["train"]["groups"] == 3
    data = open_dataset(resolve("streets", folds=3, storage=str(folder)))
    assert sorted(len(data.parts(fold)[1]) for fold in range(3)) == [1, 1, 2]
    with refused(SpecError, "3 groups cannot fill 4 folds"):
        resolve("streets", folds=4, storage=str(folder))


def test_rows_without_a_group_may_lie_in_any_fold(folder):
    text = (
        "pre,post,label,group,fold,split\na0.png,b0.png,0,,0,\na1.png,b1.png,0,,1,\n"
        "a2.png,b2.png,0,g,1,\na3.png,b3.png,0,g,0,test\n"
    )
    assert rows(folder, pairs(folder, text))["fold"] == [0, 1, 1]


GROUPS = (
    "pre,post,label,group,split\na0.png,b0.png,0,west,\na1.png,b1.png,1,east,\n"
    "a2.png,b2.png,0,west,\na3.png,b3.png,1,east,test\n"
)


def test_every_group_can_be_a_fold_of_its_own(folder):
    manifest = pairs(folder, GROUPS, folds="groups")
    assert rows(folder, manifest)["fold"] == [0, 1, 0], "in the order of the list"
    assert open_dataset(manifest).parts(0)[1].column("group").to_pylist() == ["west", "west"]
    with refused(SpecError, "comes with 2 folds of its own"):
        resolve(str(folder / "staged"), folds=3, storage="unused")


def test_folds_by_groups_need_them(folder):
    text = "pre,post,label,group\na0.png,b0.png,0,g\na1.png,b1.png,1,"
    with refused(DataError, "pairs.csv, line 3: this pair has no group"):
        pairs(folder, text, folds="groups")
    with refused(DataError, "all training rows are of the group 'g'; folds=groups needs two"):
        pairs(folder, text + "g", folds="groups")


def test_rows_without_a_crop_are_taken_whole(folder):
    text = "pre,post,label,x,y,size\na0.png,b0.png,0,8,0,8\na1.png,b1.png,1,,,\n"
    manifest = pairs(folder, text, size=8)
    assert rows(folder, manifest)["x"] == [8, None]
    result = open_dataset(manifest).split("train").array("pre")
    assert np.array_equal(result[0], np.asarray(Image.open(folder / "a0.png"))[:8, 8:])
    whole = Image.open(folder / "a1.png").resize((8, 8), Image.Resampling.BICUBIC)
    assert np.array_equal(result[1], np.asarray(whole))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "pre,post,label,x,y,size\na0.png,b0.png,0,0,0,8\na1.png,b1.png,1,,0,8\n",
            r"pairs\.csv, line 3: size is '8' without x: .* leave size empty to take the image whole",
        ),
        (
            "pre,post,label,size\na0.png,b0.png,0,8\n",
            r"pairs\.csv, line 2: size is '8' without x: ",
        ),
        (
            "pre,post,label,x,y,size\na0.png,b0.png,0,0,0,8.0\n",
            r"pairs\.csv, line 2: size must be a whole number, such as 64, or empty, got '8\.0'",
        ),
        (
            "pre,post,label,x,y,size\na0.png,b0.png,0,left,0,8\n",
            r"pairs\.csv, line 2: x must be a whole number.*, got 'left'",
        ),
        (
            "pre,post,label,x,y,size\na0.png,b0.png,0,0,0,0\n",
            r"pairs\.csv, line 2: size must be at least 1, got '0'",
        ),
        (
            "pre,post,label,x\na0.png,b0.png,0,99999999999\n",
            r"pairs\.csv, line 2: x must be a whole number.*, got '99999999999'",
        ),
        (
            "pre,post,label,fold,split\na0.png,b0.png,0,0,\na1.png,b1.png,0,x,test\n",
            r"pairs\.csv, line 3: fold must be a whole number.*'x'",
        ),
        (
            "pre,post,label,fold\na0.png,b0.png,0,0\na1.png,b1.png,0,\n",
            r"pairs\.csv, line 3: fold is empty; .*numbered from 0, or the list no column fold",
        ),
        (
            "pre,post,label\na0.png,b0.png,0\na1.png,b1.png\n",
            r"pairs\.csv, line 3 has 2 cells, its header 3 \(pre, post, label\): write an empty cell where there is "
            r"no value",
        ),
        (
            "pre,post,label\na,0.png,b0.png,0\n",
            r"pairs\.csv, line 2 has 4 cells, its header 3 .* quotes around one that holds a comma",
        ),
        (
            "pre,post,label\na0.png,b0.png,0\n\na1.png,b1.png,\n",
            r"pairs\.csv, line 4: label is empty",
        ),
        ("pre,post,label\n", r"pairs\.csv lists no pairs"),
        (
            "pre,post,label,split\na0.png,b0.png,0,test\n",
            r"pairs\.csv has no row of the split train, only of test: ",
        ),
        (
            "pre,post,label,group,fold\na0.png,b0.png,0,g,0\na1.png,b1.png,0,h,1\na2.png,b2.png,0,g,1\n",
            r"pairs\.csv, line 4: group 'g' is in fold 1 here and in fold 0 on line 2: a group must not be ",
        ),
        ("pre,label\na0.png,0\n", r"pairs\.csv has no column post"),
        ("pre;post;label\na0.png;b0.png;0\n", r"no column pre, post, label; .*is 'pre;post;label'"),
        (
            'pre,post,label,id\na0.png,b0.png,0,1\na1.png,b1.png,1,"2\na2.png,b2.png,1,3\n',
            r"pairs\.csv: the row that begins on line 3 is no CSV .*; a quote that opens a cell must close it",
        ),
        (
            "pre,post,label,label\na0.png,b0.png,0,1\n",
            r"pairs\.csv has the column 'label' twice; give each a name of its own",
        ),
        (
            "pre,post,label,fold\na0.png,b0.png,0,0\n",
            r"pairs\.csv: there must be two folds or more, numbered from 0 without a gap, got \['0'\]",
        ),
        (
            "pre,post,label,fold\na0.png,b0.png,0,0\nlost.png,b1.png,1,1\n",
            r"the data come with folds 0 to 1, and the rows that can be read are of the folds 0$",
        ),
        (
            "pre,post,label,split\na0.png,b0.png,0,\na1.png,b1.png,1,hold/out\n",
            r"the name 'hold/out' has a slash.*; nothing is staged; mend it at its source$",
        ),
        (
            "pre,post,label,split\nlost.png,b0.png,0,\na1.png,b1.png,1,test\n",
            r"gave no rows of the split train; left out: 1 \(missing image\)$",
        ),
    ],
)
def test_what_is_wrong_is_named_by_line_and_rule(folder, text, message):
    with refused(DataError, match=message):
        pairs(folder, text)
    assert not (folder / "staged" / MANIFEST).exists()


def test_a_list_of_another_encoding_says_what_to_do(folder):
    with refused(DataError, match=r"a text of .*pairs\.csv is not in UTF-8 .*; save it as UTF-8$"):
        pairs(folder, "pre,post,label\na0.png,b0.png,0\n", "utf-16")


def test_blanks_around_cells_make_no_class_and_no_group(folder):
    """A group with a blank behind it would be another one, of which folds part the rows. Empty rows are no pairs, and
    cells beyond the header may be empty."""
    text = (
        "pre, post, label, group, split\na0.png, b0.png, wet, street , Training\n,,,,\n"
        "a1.png,b1.png,wet ,street,,,\na2.png,b2.png,-1,road,Testing\n"
    )
    manifest = pairs(folder, text)
    assert manifest.classes == ("-1", "wet"), "sorted names, as not all are numbers"
    assert {name: manifest.rows(name) for name in manifest.splits} == {"train": 2, "test": 1}
    assert rows(folder, manifest)["group"] == ["street", "street"]
    with refused(DataError, r"labels ['-1'] are not among `classes` ['dry', 'wet']"):
        pairs(folder, text, classes=["dry", "wet"])


def test_grey_next_to_colour_is_not_cured_by_a_size(folder):
    text = "pre,post,label\na0.png,b0.png,0\nagrey.png,bgrey.png,0\n"
    for settings in ({}, {"size": 8}):
        with refused(DataError, match=r"line 3: .*agrey\.png.*, and grey ones next to colour"):
            pairs(folder, text, **settings)
    with refused(DataError, match=r"line 3: .*alow\.png.*--set size=64"):
        pairs(folder, text.replace("grey", "low"))
    assert pairs(folder, text.replace("grey", "low"), size=8).rows("train") == 2


@pytest.mark.parametrize(
    ("labels", "line", "value", "last"),
    [((1, 3), 3, 3, 1), ((10, 20), 2, 10, 1), ((1, 1), 2, 1, 0)],
)
def test_numbers_that_leave_a_class_empty_are_refused(folder, labels, line, value, last):
    text = "pre,post,label\n" + "".join(
        f"a{i}.png,b{i}.png,{label}\n" for i, label in enumerate(labels)
    )
    rule = rf"line {line}: label {value} is none of the {last + 1} classes, .* from 0 to {last} without a gap: "
    with refused(DataError, match=rf"pairs\.csv, {rule}renumber them, or name .* --set classes="):
        pairs(folder, text)
    classes = [f"class {i}" for i in range(max(labels) + 1)]
    assert pairs(folder, text, classes=classes).classes == tuple(classes)
    with refused(DataError, match=rf"label \d+ is none of the {max(labels)} classes"):
        pairs(folder, text, classes=classes[:-1])


def test_ids_are_kept_where_there_are_any(folder):
    plain = pairs(folder, "pre,post,label\na0.png,b0.png,0\n")
    manifest = pairs(folder, "id,pre,post,label\n007,a0.png,b0.png,0\n", to="with-ids")
    assert rows(folder, manifest)["id"] == ["007"]
    assert "id" not in rows(folder, plain) and manifest.digest != plain.digest
