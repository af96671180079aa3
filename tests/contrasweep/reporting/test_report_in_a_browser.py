"""The HTML report as a reader has it: in headless Chromium, at the widths of a laptop and of a phone."""

import asyncio
import contextlib
import itertools

import numpy as np
import pandas as pd
import pytest
from benchmarks.browser import LAPTOP, PHONE, browser, chromium, search_page
from reports import report_of

from contrasweep.reporting import html_report
from contrasweep.storage.study_document import StudyDocument

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
DOCUMENT = StudyDocument(
    name="read-by-people", metric="f1_macro", arms=("a", "b"), axes=("batch_size",), folds=5
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """2 arms x 4 batch sizes x 5 folds with made-up numbers; one trial failed."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "trial_id": f"{arm}-{batch}-{fold}",
            "arm": arm,
            "batch_size": batch,
            "fold": fold,
            "seed": 0,
            "status": "done",
            "seconds": 2.0,
            "f1_macro": 0.8 + 0.02 * (arm == "b") + 0.01 * fold + rng.normal(0, 0.004),
            "gpu_memory_gib": 1.5,
            "error": None,
            "cause": None,
        }
        for arm, batch, fold in itertools.product("ab", (8, 16, 32, 64), range(5))
    ]
    rows[3] |= {"status": "failed", "error": "Traceback\nValueError: no", "cause": "method"}
    steps = [
        {"trial_id": r["trial_id"], "step": s, "f1_macro": 0.1 * s, "loss": 1 / s}
        for r in rows
        for s in range(1, 8)
    ]
    links = {r["trial_id"]: f"http://127.0.0.1:5000/#/runs/{r['trial_id']}" for r in rows}
    path = tmp_path_factory.mktemp("page") / "report.html"
    images = [(f"{arm}-8-0", f"centres: {arm}", "") for arm in "ab"]
    frame = pd.DataFrame(rows)
    curves = pd.DataFrame(steps)
    path.write_text(
        html_report(report_of(frame, DOCUMENT, curves=curves, links=links, images=images))
    )
    return path


@pytest.fixture(scope="module")
def seen():
    """seen(file, width, height, *codes): the values of `codes` in the opened page, one after the other, and the errors
    of its scripts. One browser for all of them, which takes seconds to start."""
    with asyncio.Runner() as loop, contextlib.ExitStack() as opened:
        context = browser()
        page = loop.run(context.__aenter__())
        opened.callback(lambda: loop.run(context.__aexit__(None, None, None)))
        errors = "window.wrong = []; onerror = (...all) => wrong.push(String(all))"
        loop.run(page.call("Page.addScriptToEvaluateOnNewDocument", source=errors))

        async def look(page_file, width, height, *codes, part=""):
            await page.resize(width, height)
            await page.open(
                "about:blank"
            )  # an address that differs in its part alone would load nothing
            await page.open(page_file.as_uri() + part)
            return [*[await page.js(code) for code in codes], await page.js("wrong")]

        yield lambda *words, **options: loop.run(look(*words, **options))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [LAPTOP, PHONE])
def test_the_page_fits(page_file, width, height, seen):
    wide, small, wrong = seen(
        page_file,
        width,
        height,
        "document.documentElement.scrollWidth",
        """
        [...document.querySelectorAll('svg text')].filter(t => t.getBoundingClientRect().height
            && parseFloat(getComputedStyle(t).fontSize)
            * t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width < 8).length""",
    )
    assert wide <= width and wrong == []
    assert small == 0, "no text of a chart is smaller than 8 pixels"


@pytest.mark.slow
def test_trials_are_filtered_sorted_and_linked(page_file, seen):
    column = (
        "[...document.querySelectorAll('.trials tbody tr')].map(row => row.children[5].innerText)"
    )
    result, order, link, same, wrong = seen(
        page_file,
        *LAPTOP,
        "const f = document.querySelector('.trials input'); f.value = 'a failed'; f.dispatchEvent(new "
        "Event('input')); document.querySelector('.count').innerText",
        f"f.value = 'b 16'; f.dispatchEvent(new Event('input')); document.querySelector('.trials "
        f"th:nth-child(6)').click(); {column}",
        "document.querySelector('.trials tbody a').href",
        "f.value = 'b batch_size=16'; f.dispatchEvent(new Event('input')); document.querySelector('.count').innerText",
    )
    assert result.startswith("1 of 40") and wrong == []
    assert len(order) == 5 and [float(v) for v in order] == sorted(map(float, order), reverse=True)
    assert same.startswith("5 of 40")
    assert link.startswith("http://127.0.0.1:5000/#/runs/b-16-")


DRAG = """(async () => { const frame = () => new Promise(requestAnimationFrame);
    await frame(); await frame();
    const svg = document.querySelector('.plot svg'), box = svg.getBoundingClientRect();
    svg.setPointerCapture = () => {};
    const at = (type, x, y) => svg.dispatchEvent(new PointerEvent(type, {bubbles: true, clientX: box.x + x * box.width,
        clientY: box.y + y * box.height}));
    at('pointerdown', FROM); at('pointermove', TO); at('pointerup', TO);
    await frame(); await frame();
    return document.querySelector('.count').innerText; })()"""


@pytest.mark.slow
def test_trials_are_selected_in_the_plot_and_the_address_keeps_what_is_shown(page_file, seen):
    """The upper half of a scatter is dragged over: fewer trials, all of them above the middle; the same by a link."""
    drag = DRAG.replace("FROM", "0.07, 0.0").replace("TO", "0.99, 0.45")
    choose = (
        "const k = document.querySelector('select[name=kind]'); k.value = '{}'; "
        "k.dispatchEvent(new Event('change'))"
    )
    scores = (
        "[...document.querySelectorAll('.trials tbody tr')].map(row => +row.children[5].innerText)"
    )
    hide = "document.querySelector('.columns input').click(); document.querySelectorAll('.trials th').length"
    picked, high, address, head, box, wrong = seen(
        page_file,
        *LAPTOP,
        drag,
        scores,
        "location.hash",
        hide,
        f"{choose.format('parallel')}; {drag}",
    )
    assert wrong == [] and 0 < len(high) < 40 and picked == f"{len(high)} of 40 trials"
    everything = seen(page_file, *LAPTOP, scores)[0]
    assert len(everything) == 40 and min(high) > float(np.median([v for v in everything if v == v]))
    assert head == 7 and box != picked, "a range on one axis is another selection"
    linked, wrong = seen(
        page_file, *LAPTOP, "document.querySelector('.count').innerText", part=address
    )
    assert linked == picked and wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scatter", "parallel", "box", "contour", "curves"])
def test_each_plot_is_drawn_and_given_as_a_file(page_file, kind, seen):
    """As SVG with its colours in it; a plot that these trials do not have says why."""
    drawn, file, wrong = seen(
        page_file,
        *LAPTOP,
        f"""(async () => {{ const k = document.querySelector('select[name=kind]'); k.value = '{kind}';
        k.dispatchEvent(new Event('change')); await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame); return document.querySelector('.plot').innerHTML; }})()""",
        """(async () => { let given = null; const make = URL.createObjectURL;
        URL.createObjectURL = content => { given = content; return make(content); };
        HTMLAnchorElement.prototype.click = () => {};
        document.querySelector('button.svg').click(); return given && await given.text(); })()""",
    )
    assert wrong == []
    if kind == "contour":
        assert "needs two settings" in drawn and file is None
    else:
        assert "<svg" in drawn and file.startswith("<svg") and 'stroke="rgb(' in file


SAVE = """(async () => { let given = null; const make = URL.createObjectURL;
    const wait = async ready => { while (!ready()) await new Promise(done => setTimeout(done, 20)); };
    URL.createObjectURL = content => { if (content.type === 'image/TYPE') given = content; return make(content); };
    HTMLAnchorElement.prototype.click = () => {};
    document.querySelector('button.BUTTON').click(); await wait(() => given);
    return [...new Uint8Array(await given.arrayBuffer())].slice(0, 8); })()"""
COUNT = "+document.querySelector('.count').innerText.split(' ')[0]"


def pick(kind, x=""):
    """Choose another plot, and wait until it is drawn; how many trials the table then shows."""
    lists = {"kind": kind} | ({"x": x} if x else {})
    chosen = "".join(
        f"l = document.querySelector('select[name={name}]'); l.value = '{value}'; l.dispatchEvent(new Event('change'));"
        for name, value in lists.items()
    )
    frames = "await new Promise(requestAnimationFrame);" * 2
    return f"(async () => {{ let l; {chosen} {frames} return {COUNT}; }})()"


@pytest.mark.slow
@pytest.mark.parametrize("trials", [50, 10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_all_plots_of_a_search_show_one_selection_however_many_trials_there_are(
    tmp_path, trials, seen
):
    """Sorted, brushed in the curves and in the boxes, given as files, and again by the link."""
    page_file = tmp_path / "report.html"
    page_file.write_text(search_page(trials))
    drag = f"(async () => +(await {DRAG}).split(' ')[0])()"
    upper = drag.replace("FROM", "0.9, 0.02").replace("TO", "0.99, 0.12")
    left = drag.replace("FROM", "0.07, 0.0").replace("TO", "0.5, 0.99")
    column = (
        "[...document.querySelectorAll('.trials tbody tr')].map(row => row.children[{}].innerText)"
    )
    kinds = ["parallel", "scatter", "contour", "curves"]
    selected, *linked, scores, arms, both, ring, png, svg, address, wrong = seen(
        page_file,
        *LAPTOP,
        f"(async () => {{ await {pick('curves')}; return await {upper}; }})()",
        *map(pick, kinds),
        f"document.querySelector('.trials th:nth-child(8)').click(); {column.format(7)}",
        f"(async () => {{ await {pick('box', 'arm')}; return {column.format(0)}; }})()",
        left,
        """(() => { document.querySelector('.trials tbody tr').dispatchEvent(new PointerEvent('pointerenter'));
        return document.querySelectorAll('.plot .mark').length; })()""",
        SAVE.replace("TYPE", "png").replace("BUTTON", "png"),
        SAVE.replace("TYPE", "svg+xml").replace("BUTTON", "svg"),
        "location.hash",
    )
    assert wrong == [] and 0 < selected < trials and linked == [selected] * len(kinds)
    values = list(map(float, scores))
    assert values == sorted(values, reverse=True) and len(values) == min(selected, 40), (
        "rows as they are scrolled to"
    )
    assert set(arms) == {"a", "b"}
    assert ring == 1 and bytes(png).startswith(b"\x89PNG") and bytes(svg).startswith(b"<svg ")
    again, of_arms, kind, wrong = seen(
        page_file,
        *LAPTOP,
        COUNT,
        column.format(0),
        "document.querySelector('select[name=kind]').value",
        part=address,
    )
    assert again == both and set(of_arms) == {"a"} and kind == "box" and wrong == []


@pytest.mark.slow
def test_very_many_trials_are_pixels_on_the_screen_and_vectors_on_paper_and_in_files(
    tmp_path, seen
):
    """In the colours of the arms that are shown, light or dark; sorting draws nothing again."""
    page_file = tmp_path / "report.html"
    page_file.write_text(search_page(10_000))
    colours = """(() => { const canvas = document.querySelector('.plot canvas'), found = new Map();
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        for (let p = 0; p < data.length; p += 4) { const rgb = data.slice(p, p + 3).join();
            if (data[p + 3] > 150) found.set(rgb, (found.get(rgb) ?? 0) + 1); }
        return [...found].filter(([, n]) => n > 400).map(([rgb]) => rgb.split(',').map(Number)); })()"""
    arm = "document.querySelector('.key').click()"
    printed = """['beforeprint', 'afterprint'].map(when => { dispatchEvent(new Event(when));
        return [document.querySelectorAll('.plot canvas').length, document.querySelectorAll('.plot path').length]; })"""
    sort = "const c = document.querySelector('.plot canvas'); document.querySelector('.trials th').click()"
    frames = "await new Promise(requestAnimationFrame);" * 2
    both, _, one, _, dark, paper, file, same, wrong = seen(
        page_file,
        *LAPTOP,
        f"(async () => {{ {frames} return {colours}; }})()",
        arm,
        colours,
        "document.getElementById('theme').click()",
        colours,
        printed,
        f"{arm}; {SAVE.replace('TYPE', 'svg+xml').replace('BUTTON', 'svg').replace('.slice(0, 8)', '.length')}",
        f"{sort}; (async () => {{ {frames} return c === document.querySelector('.plot canvas'); }})()",
    )
    blue = (37, 99, 168)
    orange = (209, 88, 15)
    light_orange = (255, 148, 80)
    has = [
        [any(np.allclose(a, b, atol=2) for b in found) for a in (blue, orange)]
        for found in (both, one)
    ]
    assert wrong == [] and has == [[True, True], [False, True]]
    assert any(np.allclose(light_orange, found, atol=2) for found in dark)
    assert paper == [[0, 3], [1, 0]] and file > 10_000 * len("M1 1h0") and same


@pytest.mark.slow
def test_a_link_shows_the_trials_below_pictures_of_any_height(tmp_path, seen):
    tall = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='4000'/>"
    page_file = tmp_path / "report.html"
    page_file.write_text(
        str(search_page(50)).replace(
            '<section id="trials"', f'<img src="{tall}"><section id="trials"'
        )
    )
    top = """(async () => { for (let i = 0; i < 5; i++) await new Promise(requestAnimationFrame);
        return document.getElementById('trials').getBoundingClientRect().top; })()"""
    shown, wrong = seen(page_file, *LAPTOP, top, part="#trials?kind=parallel")
    assert wrong == [] and 0 <= shown < 200


@pytest.mark.slow
def test_rows_are_added_as_the_table_is_scrolled_and_a_zoom_fills_the_plot(tmp_path, seen):
    page_file = tmp_path / "report.html"
    page_file.write_text(search_page(300))
    rows = "document.querySelectorAll('.trials tbody tr').length"
    scroll = f"""(async () => {{ const box = document.querySelector('.rows'); box.scrollTop = box.scrollHeight;
        while ({rows} === 40) await new Promise(requestAnimationFrame); return {rows}; }})()"""
    drag = DRAG.replace("FROM", "0.9, 0.02").replace("TO", "0.99, 0.3")
    tick = "Math.min(...[...document.querySelectorAll('.plot text.tick[text-anchor=end]')].map(t => +t.textContent))"
    zoom = f"""(async () => {{ await {pick("curves")}; await {drag}; const before = {tick};
        document.querySelector('button.zoom').click(); await {pick("curves")}; const same = {tick};
        document.querySelector('button.zoom').click(); await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame); return [before, same, {tick}]; }})()"""
    first, more, (before, other, after), wrong = seen(page_file, *LAPTOP, rows, scroll, zoom)
    assert wrong == [] and first == 40 and more == 80
    assert before < 0.5 and other == before and after > 0.6, "another plot begins without the zoom"


@pytest.mark.slow
def test_an_arm_is_hidden_and_values_are_read_off_a_chart(page_file, seen):
    point = """(() => { const svg = document.querySelector('#curves svg'), box = svg.getBoundingClientRect();
        const at = {bubbles: true, clientX: box.right - 14, clientY: box.y + box.height / 2};
        svg.dispatchEvent(new PointerEvent('pointermove', at));
        return document.getElementById('tip').innerText; })()"""
    both, _, one, wrong = seen(
        page_file, *LAPTOP, point, "document.querySelector('.key').click()", point
    )
    assert both.split("\n")[0] == "step 7" and both.count("0.700") == 2
    assert one.count("0.700") == 1 and wrong == []


@pytest.mark.slow
def test_the_table_is_sorted_by_keyboard_and_two_trials_stand_side_by_side(
    page_file, tmp_path, seen
):
    searched = tmp_path / "search.html"
    searched.write_text(search_page(50))
    head = "document.querySelectorAll('.trials th button')"
    rows = "document.querySelectorAll('.trials tbody tr')"
    enter = "dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))"
    named, focused, pair, strokes, colours, wrong = seen(
        searched,
        *LAPTOP,
        "[...document.querySelectorAll('thead th')].every(head => head.scope)",
        f"const sorted = {head}[2]; sorted.focus(); sorted.click(); "
        "[document.activeElement.innerText, document.activeElement.parentElement.ariaSort]",
        f"{rows}[0].{enter}; {rows}[3].{enter}; [...document.querySelectorAll('.pair tr')].map(row => row.innerText)",
        "document.querySelectorAll('.pair path.stroke').length",
        "(async () => { const kind = document.querySelector('select[name=kind]'); kind.value = 'parallel'; "
        "kind.dispatchEvent(new Event('change')); "
        "for (let n = 0; n < 4; n++) await new Promise(requestAnimationFrame); "
        "const lines = [...document.querySelectorAll('.plot g[data-name] path')].map(line => getComputedStyle(line)); "
        "return ['stroke', 'strokeDasharray'].map(name => new Set(lines.map(line => line[name])).size)})()",
    )
    assert named and focused == ["learning_rate", "descending"] and wrong == []
    assert len(pair) > 8 and pair[0].split()[0] == "arm" and len(pair[2].split()) == 3
    assert strokes == 2
    assert colours[0] >= 6 and colours[1] == 2, "by value, and pruned ones dotted"
    beside = "[...document.querySelectorAll('.pair .pictures > *')].map(part => part.innerText)"
    both, alone, wrong = seen(
        page_file,
        *LAPTOP,
        f"{rows}[0].{enter}; {rows}[20].{enter}; {beside}",
        f"{rows}[1].{enter}; {beside}",
    )
    assert both == ["centres: a", "centres: b"] and wrong == []
    assert alone[0] == "centres: b" and alone[1].startswith("no picture of a-8-1")


@pytest.mark.slow
def test_a_phone_shows_the_answer_and_the_table_and_unfolds_the_rest(page_file, seen):
    folded = "[...document.querySelectorAll('.fold')].map(fold => fold.open)"
    opened, after, wrong = seen(
        page_file,
        *PHONE,
        folded,
        "(async () => { location.hash = '#trials'; await new Promise(done => setTimeout(done, 300)); "
        "return document.querySelector('#trials > .fold').open })()",
    )
    assert opened[:2] == [True, True] and not any(opened[2:]) and after and wrong == []
    assert all(seen(page_file, *LAPTOP, folded)[0])
