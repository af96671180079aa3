// Shows what runs now every two seconds. A newer report takes the page's place once its reader asks, or has touched nothing.
const live = document.getElementById("live"), offer = live.querySelector("p");
let touched = false;
for (const kind of ["pointerdown", "keydown", "wheel"]) addEventListener(kind, () => { touched = true; }, { passive: true });
offer.querySelector("button").addEventListener("click", () => location.reload());
const follow = async () => {
  try {
    const now = await (await fetch("/now.json")).json();
    live.querySelector("div").innerHTML = now.html;
    const newer = now.version !== Number(document.body.dataset.version);
    offer.hidden = !newer;
    if (newer && !touched) location.reload();
    document.body.classList.remove("away");
  } catch { document.body.classList.add("away"); }
  setTimeout(follow, 2000);
};
follow();
