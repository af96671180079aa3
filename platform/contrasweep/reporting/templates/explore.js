// All trials: a table that is filtered and sorted, and one plot of them in which a range is selected by dragging.
// Each change is written into the address, so that a link shows the same again.
const NS = document.createRange().createContextualFragment("<svg>").firstChild.namespaceURI, WIDE = 1040, TALL = 360, EDGE = { left: 70, right: 1020, top: 16, bottom: 320 };
const KINDS = ["scatter", "parallel", "box", "contour", "curves"], PAGE = 40, VECTORS = 2000, CELLS = 26, CATEGORIES = 12;
const shape = (tag, attributes, ...inside) => {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...inside);
  return node;
};
const ticks = (low, high) => {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => power * factor >= rough), found = [];
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) found.push(+t.toPrecision(12));
  return found;
};
const quantile = (sorted, share) => {
  const at = share * (sorted.length - 1), below = Math.floor(at);
  return sorted[below] + (at - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
};

const explore = box => {
const { columns, links, size, tones, stopped, metric, settings, curves } = JSON.parse(box.querySelector("script").textContent);
const part = name => box.querySelector(name), named = name => columns.findIndex(column => column.name === name);
const arm = named("arm"), status = named("status"), trial = columns.length - 1, all = Uint32Array.from({ length: size }, (_, i) => i);
const numbers = columns.map((column, j) => j).filter(j => !columns[j].words && j !== trial);
for (const [j, column] of columns.entries()) column.at = j === trial ? all : column.words ? Uint32Array.from(column.at) : new Float64Array(column.values.map(v => v ?? NaN));
const value = (j, i) => columns[j].at[i];
const text = (j, i) => {
  const { words, values, at } = columns[j];
  return words ? words[at[i]] : values[i] === null ? "–" : short(values[i]);
};
const state = { q: "", sort: "", down: false, kind: "scatter", x: settings[0] ?? "seed", y: metric, zoom: false, hide: new Set(), ranges: {}, through: null };
let pair = [], order = all, rows = all, wanted = new Uint8Array(size), words = {}, shown = PAGE, paths = [], places = [], front = null, drawn = null, coming = 0;

const spoken = columns.map((_, j) => j).filter(j => !numbers.includes(j) || settings.includes(columns[j].name));
const said = k => columns[k].said ??= (columns[k].words ?? Array.from(all, i => String(text(k, i)))).map(part => part.toLowerCase());
const holders = word => {  // the trials with axis=value, a whole number, or a part of any other word
  const [name, wish] = word.split("="), j = columns.findIndex(column => column.name.toLowerCase() === name), exact = wish !== undefined && j >= 0;
  const fits = /^[\d.]+$/.test(word) ? said => ` ${said} `.includes(` ${word} `) : exact ? said => said === wish : said => said.includes(word);
  const found = new Uint8Array(size);
  for (const k of exact ? [j] : spoken) {
    const column = columns[k], { at } = column;
    if (!exact && numbers.includes(k) && /[^-+.\de–]/.test(word)) continue;  // no number is written so
    const yes = said(k).map(fits);
    for (let i = 0; i < size; i++) found[i] |= yes[column.words ? at[i] : i];
  }
  return found;
};
const passes = (i, first, last, low, high) => Boolean(curves?.values[i]) && curves.values[i].some(
  (v, k) => v !== null && v >= low && v <= high && curves.steps[k] >= first && curves.steps[k] <= last);
const sift = () => {
  const asked = new Set(state.q.toLowerCase().split(/\s+/).filter(Boolean));
  words = Object.fromEntries([...asked].map(word => [word, words[word] ?? holders(word)]));
  wanted.fill(1);
  for (const holds of Object.values(words)) for (let i = 0; i < size; i++) wanted[i] &= holds[i];
  for (const [name, [low, high]] of Object.entries(state.ranges)) {
    const { at } = columns[named(name)];
    for (let i = 0; i < size; i++) if (!(at[i] >= low && at[i] <= high)) wanted[i] = 0;
  }
  if (state.through) for (let i = 0; i < size; i++) if (wanted[i] && !passes(i, ...state.through)) wanted[i] = 0;
  rows = order.filter(i => wanted[i]);
};
const sample = () => {  // of very many trials some are drawn as lines, those that are selected before the others
  const some = (list, most) => list.length > most ? list.filter((_, n) => (Math.imul(n, 2654435761) >>> 16) % Math.ceil(list.length / most) === 0) : list;
  const chosen = some(all.filter(i => wanted[i]), VECTORS);
  return [...some(all.filter(i => !wanted[i]), Math.max(0, VECTORS - chosen.length)), ...chosen];
};
const sorted = () => {
  const column = columns[named(state.sort)];
  if (!column) return all;
  const { compare } = new Intl.Collator(undefined, { numeric: true }), keys = new Float64Array(column.at);
  if (column.words) {
    const rank = [];
    [...column.words.keys()].sort((a, b) => compare(column.words[a], column.words[b])).forEach((w, at) => { rank[w] = at; });
    for (let i = 0; i < size; i++) keys[i] = rank[keys[i]];
  }
  if (state.down) for (let i = 0; i < size; i++) keys[i] = -keys[i];
  return all.slice().sort((a, b) => keys[a] - keys[b] || Number.isNaN(keys[a]) - Number.isNaN(keys[b]) || a - b);
};

const scale = (name, from, to) => {
  const column = columns[named(name)];
  if (column.words) {
    const many = column.words.length, map = v => from + (v + .5) / many * (to - from);
    return Object.assign(map, { band: Math.abs(to - from) / many, back: p => (p - from) / (to - from) * many - .5,
      ticks: column.words.map((word, v) => [v, word]).filter((_, v) => v % Math.ceil(many / 14) === 0) });
  }
  return along(from, to, column.at, state.zoom && state.ranges[name], column.log);
};
const along = (from, to, values, within, declared) => {  // an axis of numbers, logarithmic where declared or where they span much
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }  // a NaN is neither
  if (within) [low, high] = within;
  if (!(low < high)) [low, high] = Number.isFinite(low) ? [low - .5, low + .5] : [0, 1];
  const log = low > 0 && (declared ?? high / low > 50), into = log ? Math.log10 : v => v, out = log ? v => 10 ** v : v => v;
  const pad = .03 * (into(high) - into(low)), a = into(low) - pad, b = into(high) + pad;
  const map = v => from + (into(v) - a) / (b - a) * (to - from);
  const marks = log ? ticks(a, b).map(t => +(10 ** t).toPrecision(1)) : ticks(a, b);
  return Object.assign(map, { band: 0, back: p => out(a + (p - from) / (to - from) * (b - a)), ticks: [...new Set(marks)].filter(t => into(t) >= a && into(t) <= b).map(t => [t, String(short(t))]) });
};
const across = (svg, sx, sy, x, y) => {
  const { left, right, top, bottom } = EDGE;
  for (const [v, word] of sy.ticks) svg.append(shape("line", { class: "grid", x1: left, x2: right, y1: sy(v), y2: sy(v) }), shape("text", { class: "tick", x: left - 8, y: sy(v) + 4, "text-anchor": "end" }, word));
  for (const [v, word] of sx.ticks) svg.append(shape("text", { class: "tick", x: sx(v), y: bottom + 18, "text-anchor": "middle" }, word));
  svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    shape("text", { class: "label", x: (left + right) / 2, y: bottom + 36, "text-anchor": "middle" }, x), shape("text", { class: "label", x: left, y: top - 5 }, y));
};
// What is drawn of the trials, a list for each arm, whether selected, and kind: x and y in turn, or lines as paths.
const MARKS = ["points", "crosses", "thin", "points strong"], crossed = columns[status].words.map(word => stopped.includes(word)), CROSS = "m-4 -4l8 8m0-8l-8 8";
const pile = (i, kind, tint = 0) => paths[(tint * columns[arm].words.length + columns[arm].at[i]) * 8 + wanted[i] * 4 + kind] ??= [];
const piles = () => Object.entries(paths).sort(([a], [b]) => (a & 4) - (b & 4)).map(([code, at]) => (
  { at, kind: code & 3, name: columns[arm].words[(code >> 3) % columns[arm].words.length], colour: `c${(code >> 3) % columns[arm].words.length % 12}`,
    tint: Math.floor((code >> 3) / columns[arm].words.length), style: MARKS[code & 3] + (code & 4 ? "" : " faint") }));
const TINTS = 8, tinted = share => `rgb(${[150, 160, 172].map((low, k) => Math.round(low + share * ([190, 60, 0][k] - low)))})`;  // grey to red-brown, on light and dark
const vectors = () => piles().map(({ at, kind, name, colour, style, tint }) => {
  let d = kind === 2 ? at.join("") : "";
  if (kind !== 2) for (let k = 0; k < at.length; k += 2) d += `M${at[k].toFixed(1)} ${at[k + 1].toFixed(1)}${kind === 1 ? CROSS : "h0"}`;
  const own = tint && { style: `color:${tinted((tint - 1) % TINTS / (TINTS - 1))};--dash:${tint > TINTS ? "2 4" : "none"}` };
  return shape("g", { class: colour, "data-name": name, ...own }, shape("path", { class: style, d }));
});
const paint = canvas => {  // the same in pixels, of very many trials; marks of one list do not add up, as in a path
  const fine = Math.min(2, devicePixelRatio), width = canvas.width = Math.round(WIDE * fine), height = canvas.height = Math.round(TALL * fine);
  const context = canvas.getContext("2d"), image = context.createImageData(width, height), { data } = image;
  for (const { at, kind, name, colour, style } of piles()) if (!hidden.has(name)) {
    canvas.setAttribute("class", `${colour} ${style}`);
    const { color, opacity, strokeWidth } = getComputedStyle(canvas), share = opacity / 255, half = parseFloat(strokeWidth) * fine / 2, reach = Math.ceil(kind === 1 ? 4 * fine : half);
    const steps = [], stamp = [], cover = new Uint8Array(width * height), seen = new Uint8Array(width * height), [red, green, blue] = color.match(/\d+/g).map(Number);
    for (let y = -reach; y <= reach; y++) for (let x = -reach; x <= reach; x++) {
      const far = kind === 1 ? Math.min(Math.abs(x - y), Math.abs(x + y)) / Math.SQRT2 : Math.hypot(x, y), alpha = 255 * Math.min(1, half + .5 - far) | 0;
      if (alpha > 0) { steps.push(y * width + x); stamp.push(alpha); }
    }
    for (let k = 0; k < at.length; k += 2) {
      const middle = (at[k + 1] * fine | 0) * width + (at[k] * fine | 0);
      if (seen[middle]) continue;
      seen[middle] = 1;
      for (let n = 0; n < steps.length; n++) if (cover[middle + steps[n]] < stamp[n]) cover[middle + steps[n]] = stamp[n];
    }
    for (let p = 0; p < cover.length; p++) if (cover[p]) {
      const over = cover[p] * share, under = data[4 * p + 3] / 255 * (1 - over), both = over + under;
      data[4 * p] = (red * over + data[4 * p] * under) / both;
      data[4 * p + 1] = (green * over + data[4 * p + 1] * under) / both;
      data[4 * p + 2] = (blue * over + data[4 * p + 2] * under) / both;
      data[4 * p + 3] = 255 * both;
    }
  }
  canvas.removeAttribute("class");
  context.putImageData(image, 0, 0);
};

const scatter = svg => {
  const sx = scale(state.x, EDGE.left, EDGE.right), sy = scale(state.y, EDGE.bottom, EDGE.top), jx = named(state.x), jy = named(state.y);
  across(svg, sx, sy, state.x, state.y);
  for (let i = 0; i < size; i++) {
    const jitter = sx.band && .6 * sx.band * ((i * 61 % 97) / 97 - .5), x = sx(value(jx, i)) + jitter, y = sy(value(jy, i));
    if (!Number.isFinite(x + y) || x < EDGE.left - 5 || x > EDGE.right + 5 || y < 0 || y > EDGE.bottom + 5) continue;
    pile(i, +crossed[columns[status].at[i]]).push(x, y);
    if (wanted[i]) places.push(x, y, i);
  }
  drawn = { ranges: (x0, x1, y0, y1) => ({ [state.x]: [sx.back(x0), sx.back(x1)], [state.y]: [sy.back(y1), sy.back(y0)] }) };
};
const parallel = svg => {
  const names = [...new Set(["arm", ...settings, state.y])].filter(name => named(name) >= 0).slice(0, 12);
  const place = k => EDGE.left + 20 + k / Math.max(1, names.length - 1) * (EDGE.right - EDGE.left - 60);
  const scales = names.map(name => scale(name, EDGE.bottom, EDGE.top + 14)), js = names.map(named);
  const jy = named(state.y), ends = Float64Array.from(all.filter(i => Number.isFinite(value(jy, i))), i => value(jy, i)).sort(), low = ends[0], high = ends[ends.length - 1];
  front.append(shape("text", { class: "label", x: EDGE.right, y: TALL - 4, "text-anchor": "end" }, `by ${state.y}: grey ${short(low)} to red ${short(high)}; dotted: ended early`));
  for (const i of sample()) {
    const ys = js.map((j, k) => scales[k](value(j, i)));
    if (ys.some(y => !Number.isFinite(y))) continue;
    const share = high > low ? (value(jy, i) - low) / (high - low) : 0;
    pile(i, 2, 1 + Math.round(share * (TINTS - 1)) + TINTS * crossed[columns[status].at[i]]).push("M" + ys.map((y, k) => `${place(k).toFixed(1)} ${y.toFixed(1)}`).join("L"));
    if (wanted[i]) ys.forEach((y, k) => places.push(place(k), y, i));
  }
  names.forEach((name, k) => {
    front.append(shape("line", { class: "axis", x1: place(k), x2: place(k), y1: EDGE.top + 14, y2: EDGE.bottom }), shape("text", { class: "label", x: place(k), y: EDGE.top, "text-anchor": "middle" }, name));
    for (const [v, word] of scales[k].ticks) front.append(shape("text", { class: "tick halo", x: place(k) + 5, y: scales[k](v) + 4 }, word));
  });
  drawn = { upright: true, ranges: (x0, x1, y0, y1) => {
    const k = names.reduce((best, _, at) => Math.abs(place(at) - x0) < Math.abs(place(best) - x0) ? at : best, 0);
    return { ...state.ranges, [names[k]]: [scales[k].back(y1), scales[k].back(y0)] };
  } };
};
const boxes = svg => {
  const jx = named(state.x), jy = named(state.y), chosen = all.filter(i => wanted[i]), found = [...new Set(Array.from(chosen, i => value(jx, i)))].filter(Number.isFinite).sort((a, b) => a - b);
  const sy = scale(state.y, EDGE.bottom, EDGE.top), arms = columns[arm].words.length, wide = (EDGE.right - EDGE.left) / Math.max(1, found.length);
  if (found.length > CATEGORIES) return `${state.x} has ${found.length} values; box plots show at most ${CATEGORIES}`;
  const at = x => found[Math.max(0, Math.min(found.length - 1, Math.floor((x - EDGE.left) / wide)))];
  drawn = found.length && { ranges: (x0, x1, y0, y1) => ({ [state.x]: [at(x0), at(x1)], [state.y]: [sy.back(y1), sy.back(y0)] }) };
  const sx = Object.assign(v => EDGE.left + (found.indexOf(v) + .5) * wide, { ticks: found.map(v => [v, columns[jx].words ? columns[jx].words[v] : String(short(v))]) });
  across(svg, sx, sy, state.x, state.y);
  const parts = {};
  for (const i of chosen) if (Number.isFinite(value(jy, i))) (parts[`${value(jx, i)} ${columns[arm].at[i]}`] ??= []).push(i);
  for (const [key, members] of Object.entries(parts)) {
    const [v, a] = key.split(" ").map(Number), ys = Float64Array.from(members, i => value(jy, i)).sort(), [q1, q2, q3] = [.25, .5, .75].map(s => sy(quantile(ys, s)));
    const half = .36 * wide / arms, x = sx(v) + (a - (arms - 1) / 2) * 2.2 * half, [low, high] = [sy(ys[0]), sy(ys[ys.length - 1])];
    svg.append(shape("g", { class: `c${a % 12}`, "data-name": columns[arm].words[a] }, shape("path", { class: "stroke", d: `M${x} ${low}V${q1}M${x} ${q3}V${high}M${x - half} ${q2}h${2 * half}M${x - half} ${q1}h${2 * half}V${q3}h${-2 * half}z` })));
    for (const i of members) places.push(x, sy(value(jy, i)), i);
  }
};
const contour = svg => {
  const others = settings.filter(name => name !== state.x && !columns[named(name)].words), across_ = state.x, up = others[0];
  if (!up || columns[named(across_)].words) return "a contour needs two settings that are numbers";
  const sx = scale(across_, EDGE.left, EDGE.right), sy = scale(up, EDGE.bottom, EDGE.top), [jx, jy, jz] = [across_, up, state.y].map(named), points = [], strong = paths[7] = [];
  for (const i of all.filter(i => wanted[i])) {
    const point = [sx(value(jx, i)), sy(value(jy, i)), value(jz, i)];
    if (!point.every(Number.isFinite)) continue;
    points.push(point);
    places.push(point[0], point[1], i);
    strong.push(point[0], point[1]);
  }
  const few = points.filter((_, n) => n % Math.ceil(points.length / 600) === 0), zs = few.map(p => p[2]), low = Math.min(...zs), high = Math.max(...zs);
  const w = (EDGE.right - EDGE.left) / CELLS, h = (EDGE.bottom - EDGE.top) / CELLS;
  for (let a = 0; a < CELLS; a++) for (let b = 0; b < CELLS; b++) {
    const x = EDGE.left + (a + .5) * w, y = EDGE.top + (b + .5) * h;
    let sum = 0, weight = 0;
    for (const [px, py, z] of few) { const near = 1 / ((px - x) ** 2 + (py - y) ** 2 + 60) ** 1.5; sum += near * z; weight += near; }
    const share = high > low ? (sum / weight - low) / (high - low) : .5;
    svg.append(shape("rect", { x: EDGE.left + a * w, y: EDGE.top + b * h, width: w, height: h, "shape-rendering": "crispEdges", fill: "var(--c0)", opacity: (.06 + .8 * share).toFixed(3) }));
  }
  across(svg, sx, sy, across_, up);
  svg.append(shape("text", { class: "label", x: EDGE.right, y: EDGE.top - 5, "text-anchor": "end" }, `${state.y}: ${short(low)} (light) to ${short(high)}, interpolated between trials`));
  drawn = { ranges: (x0, x1, y0, y1) => ({ [across_]: [sx.back(x0), sx.back(x1)], [up]: [sy.back(y1), sy.back(y0)] }) };
};
const courses = svg => {
  if (!curves) return `no trial has ${metric} at two steps`;
  const within = state.zoom && state.through, { left, right, top, bottom } = EDGE;
  const sx = along(left, right, curves.steps, within && within.slice(0, 2)), sy = along(bottom, top, curves.all ??= curves.values.flatMap(c => c || []).filter(v => v !== null), within && within.slice(2));
  across(svg, sx, sy, "step", metric);
  for (const i of sample()) if (curves.values[i]) {
    const at = curves.values[i].map((v, k) => [sx(curves.steps[k]), v === null ? NaN : sy(v)]).filter(([x, y]) => y > -TALL && y < 2 * TALL && x > left - 5 && x < right + 5);
    if (!at.length) continue;
    pile(i, 2).push("M" + at.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L") + (crossed[columns[status].at[i]] ? CROSS : at.length > 1 ? "" : "h2"));
    if (wanted[i]) for (const [x, y] of at) places.push(x, y, i);
  }
  drawn = { through: (x0, x1, y0, y1) => [sx.back(x0), sx.back(x1), sy.back(y1), sy.back(y0)] };
};
const plots = { scatter, parallel, box: boxes, contour, curves: courses };

const plot = (exact = size <= VECTORS || !["scatter", "contour"].includes(state.kind)) => {
  const viewBox = `0 0 ${WIDE} ${TALL}`, svg = shape("svg", { viewBox, class: "explored", role: "img", "aria-label": `${state.kind} of ${size} trials` });
  front = exact ? shape("g", {}) : shape("svg", { viewBox, class: "over" });
  [paths, places, drawn] = [[], [], null];
  const refused = plots[state.kind](svg), canvas = document.createElement("canvas");
  canvas.paint = () => paint(canvas);
  if (exact) svg.append(...vectors(), front);
  svg.tell = event => {
    const at = where(svg, event);
    let [best, near] = [14, -1];
    for (let k = 0; k < places.length; k += 3) {
      const far = Math.hypot(places[k] - at.x, places[k + 1] - at.y);
      if (far < best) [best, near] = [far, places[k + 2]];
    }
    return near < 0 ? [] : [make("b", `${text(arm, near)} ${text(named(metric), near)}`), ...["status", ...settings, "fold", "seed"].filter(name => named(name) >= 0).map(name => make("div", `${name} ${text(named(name), near)}`)), make("div", text(trial, near))];
  };
  svg.addEventListener("pointerdown", event => drawn && brush(svg, event));
  part(".plot").replaceChildren(...refused ? [make("p", refused)] : exact ? [svg] : [svg, canvas, front]);
  dim();
};
part(".plot").draw = plot;
const select = (ranges = {}, through = null, zoom = false) => { state.zoom &&= zoom; Object.assign(state, { ranges, through }); shown = PAGE; show(); };
const where = (svg, event) => {
  const bounds = svg.getBoundingClientRect(), factor = WIDE / bounds.width;
  return { x: (event.clientX - bounds.x) * factor, y: (event.clientY - bounds.y) * factor };
};
const brush = (svg, first) => {
  const a = where(svg, first), frame = shape("rect", { class: "brush" });
  let b = a;
  front.append(frame);
  svg.setPointerCapture(first.pointerId);
  const move = event => {
    b = where(svg, event);
    const x = drawn.upright ? a.x - 9 : Math.min(a.x, b.x), width = drawn.upright ? 18 : Math.abs(a.x - b.x);
    for (const [name, at] of Object.entries({ x, y: Math.min(a.y, b.y), width, height: Math.abs(a.y - b.y) })) frame.setAttribute(name, at);
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerup", () => {
    svg.removeEventListener("pointermove", move);
    const far = Math.abs(a.y - b.y) > 4 && (drawn.upright || Math.abs(a.x - b.x) > 4);
    const box = [Math.min(a.x, b.x), Math.max(a.x, b.x), Math.min(a.y, b.y), Math.max(a.y, b.y)];
    select(far && drawn.ranges ? drawn.ranges(...box) : {}, far && drawn.through ? drawn.through(...box) : null, far);
  }, { once: true });
};

const visible = () => columns.map((_, j) => j).filter(j => !state.hide.has(columns[j].name));
const table = () => {
  const seen = visible(), top = document.createElement("tr");
  for (const j of seen) {
    const cell = make("th"), button = make("button", columns[j].name);
    cell.scope = "col";
    cell.append(button);
    if (state.sort === columns[j].name) {
      cell.dataset.dir = state.down ? "down" : "up";
      cell.ariaSort = state.down ? "descending" : "ascending";
    }
    cell.addEventListener("click", () => {
      state.down = state.sort === columns[j].name ? !state.down : !columns[j].words;
      state.sort = columns[j].name;
      order = sorted();
      sift();
      table();
      write();
      part("thead").querySelectorAll("button")[seen.indexOf(j)].focus();
    });
    top.append(cell);
  }
  part("thead").replaceChildren(top);
  part("tbody").replaceChildren(...Array.from(rows.subarray(0, shown), i => row(seen, i)));
  part(".count").textContent = `${rows.length} of ${size} trials`;
};
const row = (seen, i) => {
  const line = document.createElement("tr");
  for (const j of seen) {
    const cell = make("td", text(j, i));
    if (j === status) cell.className = tones[text(j, i)] ?? "";
    if (j === trial && links[i]) {
      const link = make("a", text(j, i));
      link.href = links[i];
      cell.replaceChildren(link);
    }
    line.append(cell);
  }
  line.addEventListener("pointerenter", () => mark(i));
  line.tabIndex = 0;
  line.classList.toggle("chosen", pair.includes(i));
  line.addEventListener("keydown", event => { if (event.key === "Enter" && event.target === line) line.click(); });
  line.addEventListener("click", () => {
    pair = pair.includes(i) ? pair.filter(other => other !== i) : [...pair, i].slice(-2);
    part("tbody").querySelectorAll("tr").forEach((other, n) => other.classList.toggle("chosen", pair.includes(rows[n])));
    compare();
  });
  return line;
};
const compare = () => {  // two trials side by side: what of them differs is bold, their curves and their pictures
  part(".pair").replaceChildren();
  if (pair.length < 2) return;
  const table = document.createElement("table"), svg = shape("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, role: "img", "aria-label": "curves of both trials" });
  table.className = "plain";
  for (const [j, { name }] of columns.entries()) {
    const line = document.createElement("tr"), head = make("th", name), texts = pair.map(i => text(j, i));
    head.scope = "row";
    line.append(head, ...texts.map(words => { const cell = make("td"); cell.append(texts[0] === texts[1] ? words : make("b", words)); return cell; }));
    table.append(line);
  }
  part(".pair").append(table);
  const kind = figure => figure.textContent.split(":")[0], pictures = pair.map(i => [...document.querySelectorAll("figure[data-trial]")].filter(figure => figure.dataset.trial === text(trial, i)));
  if (pictures.flat().length) {
    const grid = make("div"), found = new Set(pictures.flat().map(kind));
    grid.className = "pictures";
    for (const name of found) grid.append(...pictures.map((own, n) => own.find(figure => kind(figure) === name)?.cloneNode(true) ?? make("p", `no picture of ${text(trial, pair[n])}: the page has those of the first trial of each cell`)));
    part(".pair").append(grid);
  }
  if (!curves || !pair.every(i => curves.values[i])) return;
  const sx = along(EDGE.left, EDGE.right, curves.steps), sy = along(EDGE.bottom, EDGE.top, pair.flatMap(i => curves.values[i]).filter(v => v !== null));
  across(svg, sx, sy, "step", metric);
  pair.forEach((i, n) => {
    const at = curves.values[i].map((v, k) => v === null ? "" : `${sx(curves.steps[k]).toFixed(1)} ${sy(v).toFixed(1)}`).filter(Boolean);
    svg.append(shape("g", { class: `c${n}` }, shape("path", { class: "stroke", d: `M${at.join("L")}`, style: `--dash:${n ? "8 3" : "none"}` }), shape("text", { class: "label", fill: "currentColor", x: EDGE.left + 12, y: 34 + 16 * n }, `${n ? "dashed" : "solid"}: ${text(trial, i)}`)));
  });
  part(".pair").append(svg);
};
const mark = i => {  // where the trial of a row lies in the plot
  part(".plot").querySelectorAll(".mark").forEach(node => node.remove());
  for (let k = 0; k < places.length; k += 3) if (places[k + 2] === i) front.append(shape("circle", { class: "mark", cx: places[k], cy: places[k + 1], r: 7 }));
};
const grow = ({ scrollTop, clientHeight, scrollHeight }) => {  // rows are made as they are scrolled to
  if (scrollTop + 2 * clientHeight < scrollHeight || rows.length <= shown) return;
  part("tbody").append(...Array.from(rows.subarray(shown, shown += PAGE), i => row(visible(), i)));
};
const write = () => {
  const said = new URLSearchParams();
  for (const name of ["q", "sort", "kind", "x", "y"]) if (state[name]) said.set(name, state[name]);
  for (const name of ["down", "zoom"]) if (state[name]) said.set(name, "1");
  if (state.hide.size) said.set("hide", JSON.stringify([...state.hide]));
  if (Object.keys(state.ranges).length) said.set("ranges", JSON.stringify(state.ranges));
  if (state.through) said.set("through", JSON.stringify(state.through));
  try { history.replaceState(null, "", `#trials?${said}`); } catch { /* a sandboxed frame has no address of its own */ }
};
const show = (keep = true) => {
  sift();
  part(".clear").hidden = part(".zoom").hidden = !Object.keys(state.ranges).length && !state.through;
  table();
  cancelAnimationFrame(coming);
  coming = requestAnimationFrame(() => {  // of many trials the table is painted first
    if (size <= VECTORS) plot(); else coming = requestAnimationFrame(() => plot());
  });
  if (keep) write();
};

const choose = (name, words) => {
  const list = part(`select[name=${name}]`);
  list.replaceChildren(...words.map(word => make("option", word)));
  list.value = state[name];
  list.addEventListener("change", () => { state[name] = list.value; state.zoom = false; show(); });
};
const saved = location.hash.startsWith("#trials?");
if (saved) {
  const said = new URLSearchParams(location.hash.slice(8)), known = name => named(name) >= 0;
  for (const name of ["q", "sort"]) state[name] = said.get(name) ?? "";
  for (const name of ["down", "zoom"]) state[name] = said.has(name);
  if (KINDS.includes(said.get("kind"))) state.kind = said.get("kind");
  if (known(said.get("x"))) state.x = said.get("x");
  if (numbers.includes(named(said.get("y")))) state.y = said.get("y");
  try {
    state.hide = new Set(JSON.parse(said.get("hide") ?? "[]"));
    state.ranges = Object.fromEntries(Object.entries(JSON.parse(said.get("ranges") ?? "{}")).filter(([name, range]) => known(name) && range.every(Number.isFinite)));
    const through = JSON.parse(said.get("through") ?? "null");
    if (through?.length === 4 && through.every(Number.isFinite)) state.through = through;
  } catch { /* an address that somebody has changed */ }
  order = sorted();
}
choose("kind", KINDS);
choose("x", columns.map(column => column.name).filter((_, j) => j !== trial));
choose("y", numbers.map(j => columns[j].name));
const input = part("input[type=search]");
input.value = state.q;
input.addEventListener("input", () => { state.q = input.value; shown = PAGE; show(); });
part(".rows").addEventListener("scroll", () => grow(part(".rows")), { passive: true });
part(".clear").addEventListener("click", () => select());
part(".zoom").addEventListener("click", () => { state.zoom = !state.zoom; show(); });
part(".columns").append(...columns.map(({ name }) => {
  const label = make("label"), tick = make("input");
  tick.type = "checkbox";
  tick.checked = !state.hide.has(name);
  tick.addEventListener("change", () => { tick.checked ? state.hide.delete(name) : state.hide.add(name); table(); write(); });
  label.append(tick, ` ${name}`);
  return label;
}));
const picture = () => {  // the drawing with its colours written into it, since a file has no style sheet
  const svg = part(".plot svg"), copy = svg.cloneNode(true), marks = [...svg.querySelectorAll("*")];
  copy.querySelectorAll("*").forEach((node, n) => {
    const style = getComputedStyle(marks[n]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-linecap", "opacity", "font-size", "font-family"]) node.setAttribute(name, style.getPropertyValue(name));
    if (style.display === "none") node.setAttribute("display", "none");
  });
  copy.setAttribute("xmlns", NS);
  copy.setAttribute("width", WIDE);
  copy.setAttribute("height", TALL);
  copy.prepend(shape("rect", { width: WIDE, height: TALL, fill: getComputedStyle(root).getPropertyValue("--card") }));
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
};
const exactly = () => { plot(true); const content = picture(); plot(); return content; };
const give = (content, name) => { const link = make("a"); link.href = URL.createObjectURL(content); link.download = name; link.click(); };
part(".svg").addEventListener("click", () => part(".plot svg") && give(exactly(), "trials.svg"));
part(".png").addEventListener("click", () => {
  if (!part(".plot svg")) return;
  const image = new Image(), canvas = document.createElement("canvas");
  image.onload = () => {
    [canvas.width, canvas.height] = [2 * WIDE, 2 * TALL];
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * WIDE, 2 * TALL);
    canvas.toBlob(content => give(content, "trials.png"));
  };
  image.src = URL.createObjectURL(exactly());
});
show(false);
window.requestIdleCallback?.(() => spoken.forEach(said));  // what the first filter looks through
const see = () => box.closest("section").scrollIntoView({ behavior: "instant" });
if (saved) document.readyState === "complete" ? see() : addEventListener("load", see);  // pictures above have their heights by then
};
