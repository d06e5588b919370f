// The playground: the form goes to the console, which passes it on; the answer is shown as it comes. The key stays in
// its field, in this page's memory.
"use strict";

const form = document.getElementById("ask");
const part = (id) => document.getElementById(id);
let stopped = null;

function seconds(since) {
  return `${((performance.now() - since) / 1000).toFixed(2)} s`;
}

function take(line, since) {
  if (!line.startsWith("data:") || line.endsWith("[DONE]")) return;
  const event = JSON.parse(line.slice(5));
  if (event.error) throw new Error(event.error.message);
  const words = event.choices?.[0]?.delta?.content;
  if (words) {
    if (part("first").textContent === "–") part("first").textContent = seconds(since);
    part("answer").textContent += words;
  }
  if (event.usage) {
    part("tokens-in").textContent = event.usage.prompt_tokens;
    part("tokens-out").textContent = event.usage.completion_tokens;
  }
}

async function ask(since) {
  const answer = await fetch("/playground", { method: "POST", body: new URLSearchParams(new FormData(form)), signal: stopped.signal });
  const id = answer.headers.get("x-request-id");
  if (id) {
    if (part("request").localName === "a") part("request").href = `/requests/${encodeURIComponent(id)}`;
    part("request").textContent = id;
    part("request").hidden = false;
  }
  const waited = answer.headers.get("x-commonpool-wait");
  if (waited) part("waited").textContent = waited.split(";")[0].replace(/s$/, " s");
  if (!answer.ok) {
    const said = await answer.text();
    let why = `${answer.status}`;
    try { why = JSON.parse(said).error.message; } catch { /* not ours: its number is all there is */ }
    throw new Error(why);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) take(line.trim(), since);
  }
  part("whole").textContent = seconds(since);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  stopped = new AbortController();
  for (const id of ["waited", "first", "whole", "tokens-in", "tokens-out"]) part(id).textContent = "–";
  part("failed").hidden = part("request").hidden = true;
  part("answer").textContent = "";
  part("send").disabled = true;
  part("stop").hidden = false;
  try {
    await ask(performance.now());
  } catch (error) {
    if (error.name !== "AbortError") {
      part("failed").querySelector("span").textContent = error.message;
      part("failed").hidden = false;
    }
  } finally {
    part("send").disabled = false;
    part("stop").hidden = true;
    if (!part("answer").textContent && part("failed").hidden) part("answer").textContent = part("answer").dataset.empty;
  }
});

part("stop").addEventListener("click", () => stopped?.abort());
