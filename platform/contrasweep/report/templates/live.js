// Keeps a served page true: what runs now every two seconds, the whole report when there is a newer one.
let version = null;
const refresh = async () => {
  const page = new DOMParser().parseFromString(await (await fetch("/")).text(), "text/html");
  const asked = document.querySelector(".trials input")?.value, chosen = [...document.querySelectorAll("select")].map(s => s.value);
  const live = document.getElementById("live").innerHTML;
  for (const part of ["header.top", "nav", "main"]) document.querySelector(part).innerHTML = page.querySelector(part).innerHTML;
  document.getElementById("live").innerHTML = live;
  document.querySelectorAll("select").forEach((s, i) => { if ([...s.options].some(o => o.value === chosen[i])) s.value = chosen[i]; });
  dress();
  const input = document.querySelector(".trials input");
  if (input && asked) { input.value = asked; input.dispatchEvent(new Event("input")); }
};
const follow = async () => {
  try {
    const now = await (await fetch("/now.json")).json();
    document.getElementById("live").querySelector("div").innerHTML = now.html;
    dim();
    if (version !== null && now.version !== version) await refresh();
    version = now.version;
    document.body.classList.remove("away");
  } catch { document.body.classList.add("away"); }
  setTimeout(follow, 2000);
};
follow();
