// Keeps a served page true: what runs now every two seconds, and of a newer report what is new in it.
let version = Number(document.body.dataset.version), text = null, parts = null;
const partsOf = page => [...page.querySelectorAll("header.top, nav, main > section:not(#live)")];
const nameOf = part => part.id || part.tagName;
const patch = changes => changes.map(part => typeof part === "string" ? part : text.slice(...part)).join("");
const put = (old, part) => {  // what a reader has opened, chosen and typed stays
  const opened = [...old.querySelectorAll("details")].map(d => d.open), chosen = [...old.querySelectorAll("select")].map(s => s.value);
  const typed = old.querySelector(".trials input")?.value, scrolled = [...old.querySelectorAll(".wide")].map(w => [w.scrollLeft, w.scrollTop]);
  old.innerHTML = part.innerHTML;
  const details = old.querySelectorAll("details");
  if (details.length === opened.length) details.forEach((d, i) => { d.open = opened[i]; });
  old.querySelectorAll("select").forEach((s, i) => { if ([...s.options].some(o => o.value === chosen[i])) s.value = chosen[i]; });
  dress(old);
  const input = old.querySelector(".trials input");
  if (typed) { input.value = typed; input.dispatchEvent(new Event("input")); }
  old.querySelectorAll(".wide").forEach((w, i) => { if (scrolled[i]) [w.scrollLeft, w.scrollTop] = scrolled[i]; });
};
const refresh = async () => {
  const news = await (await fetch(`/changes.json?since=${text === null ? 0 : version}`)).json();
  text = patch(news.changes);
  const newer = partsOf(new DOMParser().parseFromString(text, "text/html")), main = document.querySelector("main");
  const here = new Map(partsOf(document).map(part => [nameOf(part), part])), known = new Map(newer.map(part => [nameOf(part), part.innerHTML]));
  here.forEach((part, name) => { if (!known.has(name)) part.remove(); });
  let before = document.getElementById("live");
  for (const part of newer) {
    const name = nameOf(part);
    let old = here.get(name);
    if (part.id) {
      if (!old) { old = document.createElement("section"); old.id = name; }
      if (before.nextElementSibling !== old) before.after(old);
      before = old;
    }
    if (parts?.get(name) !== known.get(name)) put(old, part);
  }
  parts = known;
  dim();
  version = news.version;
};
const follow = async () => {
  try {
    const now = await (await fetch("/now.json")).json();
    document.getElementById("live").querySelector("div").innerHTML = now.html;
    dim();
    if (now.version !== version) await refresh();
    document.body.classList.remove("away");
  } catch { document.body.classList.add("away"); }
  setTimeout(follow, 2000);
};
follow();
