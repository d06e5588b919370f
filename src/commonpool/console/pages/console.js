// Every two seconds the page is fetched again and its <main> swapped in: the server alone knows how to draw it.
const EVERY_MS = 2000;

async function refresh() {
  let fresh = false;
  try {
    const answer = await fetch(location.pathname, { signal: AbortSignal.timeout(10000) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.querySelector("main");
    if (main) {
      document.querySelector("main").replaceWith(main);
      fresh = true;
    }
  } catch { /* said below */ }
  document.getElementById("stale").hidden = fresh;
}

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, EVERY_MS);
}

setTimeout(loop, EVERY_MS);
