"use strict";
// The charts of the page, drawn by uPlot. Colours are read from the style sheet, so that they follow light and dark.

const shade = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const STAGE_COLOURS = ["blue", "orange", "green", "sky", "purple", "vermilion", "yellow"];
const HEIGHT = 160;

// Every second stage is hatched, so that neighbours differ without colour too.
function fillOf(name, place) {
  const colour = shade(name === "plan" ? "grey" : STAGE_COLOURS[place % STAGE_COLOURS.length]);
  if (place % 2 === 0) return colour;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = shade("card");
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const from of [-8, 0, 8]) { pen.moveTo(from, 8); pen.lineTo(from + 8, 0); }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}

function axis(more) {
  return {
    stroke: () => shade("quiet"), grid: {stroke: () => shade("grid"), width: 1}, ticks: {stroke: () => shade("grid"), width: 1},
    font: "12px system-ui, sans-serif", ...more,
  };
}

function sized(into, made) {
  new ResizeObserver(() => made.setSize({width: into.clientWidth, height: HEIGHT})).observe(into);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => made.redraw());
  return made;
}

// A line over time. Unknown values leave a hole.
function lineChart(into, colour, sync, values) {
  const made = new uPlot({
    width: into.clientWidth, height: HEIGHT, legend: {show: false}, cursor: {sync: {key: sync}, drag: {x: false, y: false}},
    scales: {y: {range: (_, low, high) => [0, Math.max(1, high * 1.1)]}},
    axes: [axis({space: 70, size: 28, values: "{HH}:{mm}:{ss}"}), axis({size: 56, values: (_, marks) => marks.map(values)})],
    series: [{}, {stroke: () => shade(colour), fill: () => shade(colour) + "2a", width: 2, points: {show: false}}],
  }, [[], []], into);
  return sized(into, made);
}

// A bar for each batch, its stages on top of each other in the order in which they happen.
function stageChart(into, pointed) {
  let names = [], made = null, batches = [];
  function build() {
    made?.destroy();
    const bars = uPlot.paths.bars({size: [0.8, 28]});
    made = new uPlot({
      width: into.clientWidth, height: HEIGHT, legend: {show: false},
      cursor: {drag: {x: false, y: false}, y: false, points: {show: false}},
      scales: {
        x: {time: false, range: (_, low, high) => [low - 0.6, Math.max(high, low + 11) + 0.6]},
        y: {range: (_, low, high) => [0, Math.max(0.1, high * 1.1)]},
      },
      axes: [
        axis({space: 60, size: 28, incrs: [1, 2, 5, 10, 20], values: (_, marks) => marks.map(at => batches[at] ? "#" + batches[at].number : "")}),
        axis({size: 56, values: (_, marks) => marks.map(mark => mark + " s")}),
      ],
      // Sums, the highest first, so that each covers the rest of the one before it.
      series: [{}, ...names.map((name, place) => [name, place]).reverse().map(([name, place]) => ({
        label: name, paths: bars, points: {show: false}, width: 0, fill: () => fillOf(name, place),
      }))],
      hooks: {setCursor: [chart => pointed(chart.cursor.idx == null ? null : batches[chart.cursor.idx] ?? null)]},
    }, [[], ...names.map(() => [])], into);
  }
  new ResizeObserver(() => made?.setSize({width: into.clientWidth, height: HEIGHT})).observe(into);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => made?.redraw());
  return {
    draw(stages, shown) {
      batches = shown;
      if (!made || stages.join("\n") !== names.join("\n")) { names = stages; build(); }
      const sums = batches.map(() => 0);
      const rows = names.map(name => batches.map((batch, at) => sums[at] += batch.stages[name] ?? 0));
      made.setData([batches.map((_, at) => at), ...rows.reverse()]);
    },
  };
}
