// Draws the charts of a page with uPlot, from the data of their elements, and again after htmx has replaced them.
"use strict";

const plots = new Map();
const dark = matchMedia("(prefers-color-scheme: dark)");
const HEIGHT = 220;

function draw(element) {
  const { unit, at, series } = JSON.parse(element.dataset.plot);
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const font = `12px ${style.fontFamily}`;
  const axis = {
    stroke: colour("--soft"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font,
    labelFont: font,
  };
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const options = {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [8, 24, 0, 0],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
    scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, space: 64, values: [
        [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
        [3600, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
        [60, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
      ] },
      { ...axis, size: 56, label: unit, labelSize: 18, values: (_, ticks) => ticks.map((tick) => short.format(tick)) },
    ],
    series: [
      { label: "From", value: (_, seconds) => (seconds === null ? "–" : new Date(seconds * 1e3).toISOString().slice(0, 16).replace("T", " ")) },
      ...series.map((line) => ({
        label: line.label,
        stroke: colour(`--line-${line.colour}`),
        width: 2,
        points: { show: true, size: 5 },
        value: (_, value) => (value === null ? "–" : value.toLocaleString("en")),
      })),
    ],
    cursor: { drag: { x: false, y: false } },
  };
  element.replaceChildren();
  plots.set(element, new uPlot(options, [at, ...series.map((line) => line.values)], element));
}

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = plots.get(target);
    if (plot && target.clientWidth && plot.width !== target.clientWidth) plot.setSize({ width: target.clientWidth, height: HEIGHT });
  }
});

function drawAll() {
  for (const [element, plot] of plots) {
    plot.destroy();
    sizes.unobserve(element);
  }
  plots.clear();
  for (const element of document.querySelectorAll("[data-plot]")) {
    draw(element);
    sizes.observe(element);
  }
}

// A refresh leaves tables open that a person has opened.
let open = [];
document.addEventListener("htmx:beforeSwap", () => {
  open = [...document.querySelectorAll("[data-plots] details[open]")].map((details) => details.id);
});
document.addEventListener("htmx:afterSwap", () => {
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  drawAll();
});
dark.addEventListener("change", drawAll);
drawAll();
