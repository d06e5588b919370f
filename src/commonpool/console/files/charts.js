// Small charts where a trend matters, of the figures in data-chart. The page's own colours, the reader's zone.
"use strict";

const drawn = new WeakMap();
const DAYS_S = 36 * 3600; // from so long on, days are told apart

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw(box) {
  const given = box.dataset.chart;
  if (drawn.get(box)?.given === given) return;
  drawn.get(box)?.plot.destroy();
  const chart = JSON.parse(given);
  const inks = ["--used", "--lent", "--borrowed", "--bad"].map(colour);
  const long = chart.at.length > 1 && chart.at[chart.at.length - 1] - chart.at[0] >= DAYS_S;
  const parts = long ? { month: "2-digit", day: "2-digit" } : { hour: "2-digit", minute: "2-digit", hour12: false };
  const moment = new Intl.DateTimeFormat("en-CA", { timeZone: chart.zone, ...parts });
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const plot = new uPlot({
    width: box.clientWidth,
    height: box.clientHeight,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), chart.zone),
    legend: { show: false },
    cursor: { y: false },
    scales: { y: { range: (_, least, most) => [0, (most || 1) * 1.1] } }, // a small change is not to look large
    axes: [{ ...axis, space: 60, size: 26, values: (_, ticks) => ticks.map((tick) => moment.format(tick * 1000)) }, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => `${tick.toLocaleString(document.documentElement.lang)} ${chart.unit}`) }],
    series: [{}, ...chart.series.map(([label], at) => ({ label, stroke: inks[at % inks.length], width: 1.5, points: { show: chart.at.length <= 48, size: 4 } }))],
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
