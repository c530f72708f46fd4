"use strict";
// Asks for what is new once a second and shows it. Whatever comes is put on the page as text, never as HTML.

const MOST_POINTS = 3600, MOST_TABLES = 200, EVERY = 1000;
const SIGNS = {good: "✓", busy: "●", warning: "▲", bad: "✕", off: "■"};
const TABLE_LEVELS = {"streaming": "good", "in its snapshot": "busy", "catching up": "busy", "not equal": "busy", "parked": "bad", "changes lost": "bad", "not captured": "bad"};
const at = id => document.getElementById(id);
const number = value => Math.round(value).toLocaleString("en");
const decimals = value => value.toLocaleString("en", {maximumFractionDigits: value < 10 ? 1 : 0});
const counted = (value, word, several = word + "s") => number(value) + " " + (value === 1 ? word : several);

let points = [], pointsOf = null, clock = 0, charts = null, last = null;

function make(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// 0.4 s, 12 s, 4 min, 1 h 12 min, 3 d 4 h
function span(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 60) return decimals(Math.max(0, seconds)) + " s";
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (hours < 1) return minutes + " min";
  if (days < 1) return hours + " h" + (minutes % 60 ? " " + minutes % 60 + " min" : "");
  return days + " d" + (hours % 24 ? " " + hours % 24 + " h" : "");
}

function timeText(seconds) {
  const time = new Date(seconds * 1000), two = value => String(value).padStart(2, "0");
  const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join("-");
  const hour = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":");
  return clock - seconds < 43200 && time.getDate() === new Date(clock * 1000).getDate() ? hour : day + " " + hour;
}

const ago = seconds => span(Math.max(0, Math.round(clock - seconds))) + " ago";

function setState(element, level, word) {
  element.className = "state " + level;
  element.dataset.sign = SIGNS[level];
  element.textContent = word;
}

function showPipelines(pipelines, shown) {
  const nav = at("pipelines");
  nav.hidden = pipelines.length < 2;
  if (nav.hidden) return;
  nav.replaceChildren(...pipelines.map(one => {
    const link = make("a");
    link.href = "#" + encodeURIComponent(one.name);
    if (one.name === shown) link.setAttribute("aria-current", "true");
    const state = make("span");
    setState(state, one.level, one.state);
    const until = one.complete_until === null ? "" : "; complete until " + timeText(one.complete_until);
    link.append(make("b", one.name), state, make("small", "lag " + span(one.lag_seconds) + until));
    return link;
  }));
}

function box(kind, title, ...lines) {
  const made = make("div", undefined, "box " + kind);
  made.append(make("b", title), ...lines.filter(Boolean).map(line => make("span", line)));
  return made;
}

// An arrow with words on it; a narrow page has these in the box.
function lane(words, to) {
  const made = make("div", undefined, "lane"), way = make("div", undefined, "way");
  const text = words.filter(Boolean).join(" · ");
  way.append(make("span", text));
  if (text) to.append(make("span", text, "narrow"));
  made.append(way, to);
  return made;
}

const some = names => names.slice(0, 3).join(", ") + (names.length > 3 ? " and " + (names.length - 3) + " more" : "");

function showFlow(flow, run) {
  const text = JSON.stringify([flow, run.messages.dead_letters]);
  if (at("flow").dataset.shown === text) return;
  at("flow").dataset.shown = text;
  const lanes = make("div", undefined, "lanes");
  for (const sink of flow.sinks) {
    const words = [sink.transforms && counted(sink.transforms, "transform"), sink.routes && counted(sink.routes, "route"), sink.format];
    lanes.append(lane(words, box("sink", sink.type, sink.guarantee)));
  }
  if (flow.dead_letters) {
    const kept = flow.dead_letters + ": " + counted(run.messages.dead_letters, "message");
    lanes.append(lane(["unreadable"], box("letters", "dead letters", kept)));
  }
  at("flow").replaceChildren(box("source", flow.source, some(flow.names), flow.format), lanes);
}

function figure(title, value, note, extra) {
  const made = make("div"), content = make("dd", value);
  if (extra) content.append(extra);
  if (note) content.append(make("small", note));
  made.append(make("dt", title), content);
  return made;
}

function headroom(run) {
  if (run.headroom_seconds === null) return run.log ? [figure("Log of the source", run.log.split(";")[0], run.log.split(";").slice(1).join(";").trim())] : [];
  const kept = run.retention_seconds, left = Math.max(0, run.headroom_seconds);
  if (kept === null) return [figure("Retention headroom", span(left))];
  const bar = make("meter");
  bar.max = kept; bar.low = kept / 4; bar.optimum = kept; bar.value = left;
  return [figure("Retention headroom", span(left), "of " + span(kept), bar)];
}

function completeness(run) {
  // Topics do not say what is still to come.
  if (run.flow.source === "kafka") return [];
  if (run.complete_until !== null) return [figure("Complete until", timeText(run.complete_until), ago(run.complete_until))];
  const open = run.tables.filter(table => table.complete_until === null).length;
  return [figure("Complete until", "not yet", open ? number(open) + " of " + counted(run.tables.length, "table") + " still lack changes" : "")];
}

function showFigures(run) {
  const waiting = run.behind_commits ?? run.behind_messages;
  const word = run.behind_commits === null ? "message" : "commit";
  const delays = run.delays;
  at("figures").replaceChildren(
    ...completeness(run),
    figure("Lag", span(run.lag_seconds), waiting === null ? "" : counted(waiting, word) + " behind"),
    figure("Delay of changes", delays === null ? "none yet" : span(delays.p50) + " median",
      delays === null ? "" : "p90 " + span(delays.p90) + " · p99 " + span(delays.p99) + " · " + counted(delays.batches, "batch", "batches")),
    figure("Throughput", number(run.rows_per_second) + " rows/s",
      counted(run.rows, "row") + " in " + counted(run.batches, "batch", "batches")
      + (run.rows_under_way ? ", " + number(run.rows_under_way) + " read for the next" : "")),
    ...headroom(run));
}

function showTroubles(run) {
  at("troubles-section").hidden = !run.troubles.length;
  at("troubles").replaceChildren(...run.troubles.map(trouble => {
    const row = make("li"), head = make("div"), state = make("span");
    setState(state, trouble.fatal ? "bad" : "warning", trouble.fatal ? "error" : "warning");
    head.append(state, " ", make("time", ago(trouble.time)));
    if (trouble.times > 1) head.append(" ", make("span", number(trouble.times) + " times", "times"));
    row.append(head, make("div", trouble.sentence));
    if (trouble.remedy) row.append(make("div", trouble.remedy, "remedy"));
    return row;
  }));
}

// How many values by table and column, of which the first are named; those of an earlier release have no names.
function valuesIn(tables, what) {
  const found = Object.entries(tables).flatMap(([table, columns]) => Object.entries(columns).map(([column, n]) => [table && table + "." + column, n]));
  const named = found.filter(([name]) => name).slice(0, 5).map(([name, n]) => number(n) + " in " + name).join(", ");
  return found.length && counted(found.reduce((sum, [, n]) => sum + n, 0), "value") + " " + what + (named && ": " + named);
}

function showLetters(messages) {
  const sums = [
    messages.unreadable && counted(messages.unreadable, "message") + " could not be read",
    messages.dead_letters && number(messages.dead_letters) + " in dead letters",
    messages.left_out && number(messages.left_out) + " left out",
    messages.no_event && counted(messages.no_event, "message") + " without an event",
    messages.shortened && counted(messages.shortened, "change") + " sent without large values",
    valuesIn(messages.out_of_range_columns, "beyond what the format holds"),
    valuesIn(messages.nulled, "written as NULL"),
  ].filter(Boolean);
  at("letters-section").hidden = !sums.length;
  at("letters-sums").textContent = sums.join("; ") + ".";
  const reasons = Object.entries(messages.reasons).sort((a, b) => b[1] - a[1]);
  at("letters").hidden = !reasons.length;
  at("letters").tBodies[0].replaceChildren(...reasons.map(([reason, count]) => {
    const row = make("tr");
    row.append(make("td", reason), make("td", number(count)));
    return row;
  }));
}

// The stages of the batches in the order in which they happen, each with its share, or with the time of one batch.
function showStages(run, pointed) {
  const names = [...new Set(run.recent_batches.flatMap(batch => Object.keys(batch.stages)))];
  const batches = pointed ? [pointed] : run.recent_batches;
  const mean = name => batches.reduce((sum, batch) => sum + (batch.stages[name] ?? 0), 0) / (batches.length || 1);
  const whole = names.reduce((sum, name) => sum + mean(name), 0);
  const now = run.under_way ? "; now " + run.under_way : "";
  at("stages-of").textContent = !batches.length ? "no batch yet" + now : pointed
    ? "batch " + number(pointed.number) + ": " + counted(pointed.rows, "row") + " in " + span(whole)
      + (pointed.delay_seconds === null ? "" : ", delay " + span(pointed.delay_seconds))
    : "mean of the last " + (batches.length === 1 ? "batch" : number(batches.length)) + ": " + span(whole) + now;
  at("stage-names").replaceChildren(...names.map((name, place) => {
    const row = make("li"), sample = make("canvas");
    sample.width = sample.height = 16;
    const pen = sample.getContext("2d");
    pen.fillStyle = fillOf(name, place);
    pen.fillRect(0, 0, 16, 16);
    row.append(sample, name, make("span", span(mean(name)) + (whole ? ", " + Math.round(mean(name) / whole * 100) + "%" : "")));
    return row;
  }));
  return names;
}

function showCharts(run) {
  charts ??= {
    lag: lineChart(at("lag"), "blue", "time", mark => mark === 0 ? "0" : span(mark)),
    rate: lineChart(at("rate"), "green", "time", mark => mark >= 1000 ? decimals(mark / 1000) + "k" : decimals(mark)),
    stages: stageChart(at("stages"), batch => last && showStages(last, batch)),
  };
  const times = points.map(point => point.time);
  charts.lag.setData([times, points.map(point => point.lag_seconds)]);
  charts.rate.setData([times, points.map(point => point.rows_per_second)]);
  const known = name => points.map(point => point[name]).filter(value => value !== null);
  const most = name => known(name).reduce((found, value) => Math.max(found, value), 0);
  const since = points.length > 1 ? "in the last " + span(Math.round(times[times.length - 1] - times[0])) : "";
  at("lag-now").textContent = known("lag_seconds").length ? "at most " + span(most("lag_seconds")) + " " + since : "unknown";
  at("rate-now").textContent = "at most " + number(most("rows_per_second")) + " " + since;
  charts.stages.draw(showStages(run, null), run.recent_batches);
}

function cell(row, label, content, note) {
  const made = make("td");
  made.dataset.label = label;
  const inner = make("div");
  inner.append(content);
  if (note) inner.append(make("small", note));
  if (content === "") made.className = "nothing";
  made.append(inner);
  row.append(made);
}

function snapshotCell(table) {
  if (table.snapshot !== "running") return [table.snapshot ? counted(table.read, "row") + " read" : "", ""];
  const rate = table.read_per_second ? number(table.read_per_second) + " rows/s" : "";
  if (table.estimate <= 0) return [counted(table.read, "row") + " so far", rate];
  const inner = make("span"), bar = make("progress");
  bar.max = table.estimate;
  bar.value = Math.min(table.read, table.estimate);
  bar.setAttribute("aria-label", "Snapshot of " + table.table);
  // Not 100 before it is done: the estimate may be too small.
  inner.append(Math.min(99, Math.floor(100 * table.read / table.estimate)) + "% ", bar);
  const left = table.seconds_left === null ? "" : "about " + span(Math.round(table.seconds_left)) + " left";
  return [inner, [number(table.read) + " of about " + number(table.estimate), rate, left].filter(Boolean).join("; ")];
}

function showTables(tables) {
  const wanted = at("filter").value.toLowerCase();
  const found = tables.filter(table => table.table.toLowerCase().includes(wanted));
  at("filter-label").hidden = tables.length <= 20;
  at("tables").hidden = !tables.length;
  at("tables-none").hidden = tables.length > 0;
  const reading = tables.filter(table => table.snapshot === "running").length;
  at("table-sums").textContent = [counted(tables.length, "table"), reading && number(reading) + " in snapshots",
    found.length > MOST_TABLES && "the first " + MOST_TABLES + " are shown"].filter(Boolean).join("; ");
  at("tables").tBodies[0].replaceChildren(...found.slice(0, MOST_TABLES).map(table => {
    const row = make("tr"), state = make("span");
    setState(state, TABLE_LEVELS[table.state] ?? "warning", table.state);
    cell(row, "table", table.table || "(no table)", table.rows.error ? counted(table.rows.error, "unreadable change") : "");
    cell(row, "state", state, table.parked ?? "");
    cell(row, "complete until", table.complete_until === null ? "" : timeText(table.complete_until),
      table.complete_until === null ? "" : ago(table.complete_until));
    cell(row, "snapshot", ...snapshotCell(table));
    for (const [op, label] of [["c", "inserts"], ["u", "updates"], ["d", "deletes"]]) cell(row, label, number(table.rows[op] ?? 0));
    return row;
  }));
}

function show(seen) {
  clock = seen.clock;
  document.title = seen.name + " - Headrace";
  at("name").textContent = seen.name;
  showPipelines(seen.pipelines, seen.name);
  const run = seen.now;
  if (!run) return;
  last = run;
  at("main").hidden = false;
  document.body.classList.toggle("stale", false);
  setState(at("state"), run.level, run.state);
  const sentence = [run.sentence, run.remedy].filter(Boolean).join(" → ");
  at("sentence").hidden = !sentence;
  at("sentence").textContent = sentence;
  showFlow(run.flow, run);
  showFigures(run);
  showTroubles(run);
  showLetters(run.messages);
  showCharts(run);
  showTables(run.tables);
}

async function look() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const newest = () => points.length ? points[points.length - 1].time : 0;
  try {
    const since = !wanted || wanted === pointsOf ? newest() : 0;
    const answer = await fetch("/progress.json?since=" + since + (wanted ? "&pipeline=" + encodeURIComponent(wanted) : ""));
    if (!answer.ok) throw new Error(await answer.text());
    const seen = await answer.json();
    if (seen.name !== pointsOf) points = [];
    pointsOf = seen.name;
    points = points.concat(seen.points.filter(point => point.time > newest())).slice(-MOST_POINTS);
    show(seen);
  } catch (error) {
    document.body.classList.toggle("stale", true);
    setState(at("state"), "bad", "The run does not answer: it has ended, or its machine can't be reached.");
    console.error(error);
  }
}

async function keepLooking() {
  await look();
  setTimeout(keepLooking, EVERY);
}

addEventListener("hashchange", look);
at("filter").addEventListener("input", () => last && showTables(last.tables));
keepLooking();
