"use strict";
const root = document.documentElement;
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
const hidden = new Set();
const dim = () => {
  document.querySelectorAll(".key").forEach(k => k.setAttribute("aria-pressed", String(!hidden.has(k.dataset.name))));
  document.querySelectorAll("svg [data-name]").forEach(g => g.classList.toggle("off", hidden.has(g.dataset.name)));
  document.querySelectorAll(".plot canvas").forEach(canvas => canvas.paint());
};
const make = (tag, text) => { const node = document.createElement(tag); node.textContent = text ?? ""; return node; };
const short = value => typeof value === "number" ? String(+value.toPrecision(5)) : value;

const unfold = () => document.querySelectorAll(".fold").forEach((fold, n) => {  // a phone opens the first two and what a link names
  fold.open = innerWidth > 600 || n < 2 || location.hash.split("?")[0] === `#${fold.parentElement.id}`;
});
addEventListener("hashchange", () => document.getElementById(location.hash.slice(1).split("?")[0])?.querySelector(".fold")?.setAttribute("open", ""));

document.querySelectorAll("#theme").forEach(button => button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; dim(); }));

document.querySelectorAll(".key").forEach(key => key.addEventListener("click", () => {
  const name = key.dataset.name;
  hidden.has(name) ? hidden.delete(name) : hidden.add(name);
  dim();
}));
dim();

document.querySelectorAll(".command button").forEach(button => button.addEventListener("click", async () => {
  const text = button.parentElement.querySelector("pre").textContent;
  try { await navigator.clipboard.writeText(text); } catch {
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1200);
}));

unfold();
document.querySelectorAll(".trials").forEach(explore);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dim);
addEventListener("beforeprint", () => document.querySelectorAll(".fold").forEach(fold => { fold.open = true; }));
addEventListener("beforeprint", () => document.querySelectorAll(".plot").forEach(box => box.draw(true)));
addEventListener("afterprint", () => document.querySelectorAll(".plot").forEach(box => box.draw()));

const tip = make("div");
tip.id = "tip";
document.body.append(tip);
let ruler = null;
const readings = svg => svg.points ??= [...svg.querySelectorAll("g[data-name]")].flatMap(group => [...group.querySelectorAll(".stroke")].map(line => ({
  group, at: (line.getAttribute("d") ?? "").slice(1).split("L").map(pair => pair.split(" ").map(Number)) })));
const point = event => {
  const svg = event.target.closest?.("svg"), title = event.target.querySelector?.(":scope > title");
  ruler?.remove();
  ruler = null;
  tip.replaceChildren();
  if (title) tip.textContent = title.textContent;
  else if (svg?.tell) tip.append(...svg.tell(event));
  else if (svg?.dataset.scales) {
    const [x0, x1, left, right, y0, y1, bottom, top] = svg.dataset.scales.split(" ").map(Number);
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.x) * scale, near = [];
    for (const { group, at } of readings(svg)) {
      if (group.classList.contains("off") || at.length < 2) continue;
      const best = at.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      near.push({ group, best });
    }
    if (!near.length || x < left - 8 || x > right + 8) return;
    const where = near.reduce((a, b) => Math.abs(b.best[0] - x) < Math.abs(a.best[0] - x) ? b : a).best[0];
    const digits = Math.max(0, Math.ceil(-Math.log10((y1 - y0) / 200)));  // what a pixel tells
    const value = x0 + (where - left) / (right - left) * (x1 - x0);
    tip.append(make("b", `${svg.dataset.x} ${+value.toPrecision(3)}`));
    for (const { group, best } of near.filter(n => Math.abs(n.best[0] - where) < 1)) {
      const line = make("div"), mark = make("i");
      mark.style.background = getComputedStyle(group).color;
      line.append(mark, `${group.dataset.name} ${(y0 + (bottom - best[1]) / (bottom - top) * (y1 - y0)).toFixed(digits)}`);
      tip.append(line);
    }
    ruler = svg.querySelector("line.grid").cloneNode();
    for (const [name, at] of Object.entries({ class: "read", x1: where, x2: where, y1: top, y2: bottom })) ruler.setAttribute(name, at);
    svg.append(ruler);
  }
  if (!tip.firstChild) return;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
  tip.style.top = Math.max(4, event.clientY - height - 12) + "px";
};
document.addEventListener("pointermove", point);
document.addEventListener("pointerdown", point);
document.addEventListener("scroll", () => { tip.replaceChildren(); ruler?.remove(); }, { passive: true });
