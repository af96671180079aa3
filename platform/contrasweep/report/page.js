"use strict";
const root = document.documentElement;
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.getElementById("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; });

const hidden = new Set();
document.querySelectorAll(".key").forEach(key => key.addEventListener("click", () => {
  const name = key.dataset.name;
  hidden.has(name) ? hidden.delete(name) : hidden.add(name);
  document.querySelectorAll(".key").forEach(k => k.setAttribute("aria-pressed", String(!hidden.has(k.dataset.name))));
  document.querySelectorAll("svg [data-name]").forEach(g => g.classList.toggle("off", hidden.has(g.dataset.name)));
}));

document.querySelectorAll("select[data-shows]").forEach(select => {
  const show = () => document.querySelectorAll(`[data-group="${select.dataset.shows}"]`).forEach(
    box => box.classList.toggle("off", box.dataset.option !== select.value));
  select.addEventListener("change", show);
  show();
});

document.querySelectorAll(".command button").forEach(button => button.addEventListener("click", async () => {
  const text = button.parentElement.querySelector("pre").textContent;
  try { await navigator.clipboard.writeText(text); } catch {
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1200);
}));
