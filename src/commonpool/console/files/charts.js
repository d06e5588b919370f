// Small charts where a trend matters, of the figures in data-chart. The page's own colours, the reader's zone.
"use strict";

const drawn = new WeakMap();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(box) {
  const given = box.dataset.chart;
  if (drawn.get(box)?.given === given) return;
  drawn.get(box)?.plot.destroy();
  const chart = JSON.parse(given);
  const inks = ["--used", "--lent", "--borrowed", "--bad"].map(colour);
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const plot = new uPlot({
    width: box.clientWidth,
    height: box.clientHeight,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), chart.zone),
    legend: { show: false },
    cursor: { y: false },
    axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => `${tick.toLocaleString(document.documentElement.lang)} ${chart.unit}`) }],
    series: [{}, ...chart.series.map(([label], at) => ({ label, stroke: inks[at % inks.length], width: 1.5, points: { show: false } }))],
  }, [chart.at, ...chart.series.map(([, values]) => values)], box);
  drawn.set(box, { plot, given });
}

function all() {
  document.querySelectorAll("[data-chart]").forEach(draw);
}

function again() {
  document.querySelectorAll("[data-chart]").forEach((box) => { drawn.get(box)?.plot.destroy(); drawn.delete(box); });
  all();
}

all();
document.addEventListener("swapped", all);
addEventListener("resize", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
