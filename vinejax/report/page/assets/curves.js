// Charts: one each for the metrics that matter most, and one for any other.

const CHARTS = [
  { title: "Mean reward", of: ["reward"], about: "of the responses that were sampled for training" },
  { title: "Validation pass@1", of: ["validation/pass_at_1"], about: "mean grade, with its 95 % interval over problems", band: true },
  { title: "KL to the start", of: ["kl_k3", "kl_k1"], about: "nats a token: how far the policy has moved" },
  { title: "Entropy", of: ["entropy"], about: "nats a token: how undecided it is" },
  { title: "Policy loss", of: ["policy_loss", "training/loss"], about: "mean over the updates of an iteration" },
  { title: "Gradient norm", of: ["grad_norm", "training/grad_norm"], about: "before clipping" },
  { title: "Response length", of: ["response_tokens"], about: "mean, in tokens" },
  { title: "Steps that teach nothing", of: ["zero_advantage_share"], about: "share of steps whose advantage is zero" },
];
const AXES = [["iterations", "Iterations"], ["episodes", "Episodes"], ["tokens", "Tokens"], ["seconds", "Seconds"]];
const AXIS_TITLES = { iterations: "iteration", episodes: "episodes", tokens: "tokens sampled", seconds: "wall seconds since the first iteration began" };

function rgba(name, alpha) {
  const numbers = colour(name).match(/[\d.]+/g).slice(0, 3);
  return `rgba(${numbers.join(",")},${alpha})`;
}

function layout(extra) {
  const soft = colour("--soft"), line = colour("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line, automargin: true,
    fixedrange: !matchMedia("(pointer: fine)").matches };
  return {
    height: 230, margin: { l: 48, r: 14, t: 10, b: 42 }, showlegend: false, dragmode: axis.fixedrange ? false : "zoom",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: soft },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--card"), bordercolor: line, font: { color: colour("--ink") } },
    ...extra, xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
  };
}

const OPTIONS = { displayModeBar: false, responsive: true };

// Draws a chart, or draws it anew. Its width is given, as a chart follows the window but not the paper.
function plot(place, traces, extra) {
  Plotly.react(place, traces, layout({ ...extra, width: place.clientWidth }), OPTIONS);
}

function traces(runs, hidden, name, axis, band) {
  const found = [];
  runs.forEach((run, i) => {
    if (!run.y[name] || hidden.has(i)) return;
    const at = run.y[name].flatMap((y, j) => (y === null ? [] : [j]));
    const pick = (column) => at.map((j) => column[j]);
    const x = pick(run.x[axis]), own = `--series-${i % 8}`, high = run.y[`${name}_high`];
    if (band && high) {
      const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
      found.push({ ...edge, y: pick(run.y[`${name}_low`]) });
      found.push({ ...edge, y: pick(high), fill: "tonexty", fillcolor: rgba(own, 0.15) });
    }
    found.push({ x, y: pick(run.y[name]), name: about.runs[i].name, mode: at.length < 30 ? "lines+markers" : "lines",
      line: { color: colour(own), width: 2, dash: i >= 8 ? "dot" : "solid" }, marker: { size: 5 },
      hovertemplate: "%{y:.4~g}<extra>%{fullData.name}</extra>" });
  });
  return found;
}

async function drawCurves() {
  const runs = await block("curves");
  const state = { axis: "iterations", hidden: new Set() };
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.y)))];
  const shown = CHARTS.map((chart) => ({ ...chart, name: chart.of.find((name) => names.includes(name)) })).filter((chart) => chart.name);
  if (!shown.length) return byId("charts-area").replaceChildren(el("p", { class: "muted" }, "There are no iterations."));
  const rest = names.filter((name) => !shown.some((chart) => chart.name === name)).sort();
  const select = el("select", { "aria-label": "Metric", onchange: () => { own.name = select.value; draw(own); } },
    ...rest.map((name) => el("option", { value: name }, name)));
  select.value = ["value", "steps"].find((name) => rest.includes(name)) ?? rest[0];
  const own = { title: "Any other metric", name: select.value, select };
  const all = rest.length ? [...shown, own] : shown;
  byId("charts-area").replaceChildren(...all.map((chart) => {
    chart.place = el("div", { class: "plot" });
    return el("div", { class: "chart" }, el("h3", {}, chart.title), chart.select ?? el("p", {}, chart.about), chart.place);
  }));
  const draw = (chart) => plot(chart.place, traces(runs, state.hidden, chart.name, state.axis, chart.band),
    { xaxis: { title: { text: AXIS_TITLES[state.axis], standoff: 6 } }, uirevision: state.axis });
  const drawn = new Set();
  const redraw = () => drawn.forEach(draw);
  whenNear(all.map((chart) => chart.place), (i) => { drawn.add(all[i]); draw(all[i]); });
  choice(byId("axes"), AXES, state.axis, (axis) => { state.axis = axis; redraw(); });
  if (runs.length > 1) byId("legend").replaceChildren(...about.runs.map((run, i) =>
    el("button", { type: "button", "aria-pressed": true, onclick: (event) => {
      const on = state.hidden.delete(i) || !state.hidden.add(i);
      event.currentTarget.setAttribute("aria-pressed", on);
      redraw();
    } }, el("span", { class: "key", "--c": `var(--series-${i % 8})` }), run.name)));
  onTheme.push(redraw);
}

// Calls `seen` once with the number of each place: first those near the screen, the others one by one
// when there is nothing else to do, and what is left at once where the page is to be printed.
function whenNear(places, seen) {
  const left = new Set(places);
  const show = (place) => {
    if (!left.delete(place)) return;
    observer.unobserve(place);
    seen(places.indexOf(place));
  };
  const observer = new IntersectionObserver((entries) =>
    entries.filter((entry) => entry.isIntersecting).forEach((entry) => show(entry.target)), { rootMargin: "200px" });
  places.forEach((place) => observer.observe(place));
  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 200));
  const next = () => {
    const [place] = left;
    if (!place) return;
    show(place);
    idle(next);
  };
  idle(next);
  onPrint.push(() => left.forEach(show));
}

const PHASE_COLOURS = [0, 1, 2, 3, 4, 5, 6, 8, 9]; // without the grey, which is for the rest

function drawPhases() {
  const names = [...new Set(about.runs.flatMap((run) => Object.keys(run.phases.wall)))];
  if (!names.length) return;
  const place = el("div", { class: "plot bars" });
  const shade = (name, i) => (name === "other" ? "--series-7" : `--series-${PHASE_COLOURS[i % PHASE_COLOURS.length]}`);
  byId("phases").replaceChildren(el("div", { class: "chart" }, el("div", { class: "legend" },
    ...names.map((name, i) => el("span", {}, el("span", { class: "key", "--c": `var(${shade(name, i)})` }), name))), place));
  const labels = about.runs.map((run) => run.name);
  const draw = () => plot(place, names.map((name, i) => ({
    type: "bar", orientation: "h", name, y: labels, x: about.runs.map((run) => run.phases.wall[name] ?? 0),
    marker: { color: colour(shade(name, i)) },
    hovertemplate: `%{x:,.1f} s<extra>${name}</extra>`,
  })), { barmode: "stack", hovermode: "closest", height: 75 + 34 * labels.length, margin: { l: 14, r: 14, t: 10, b: 44 },
    xaxis: { title: { text: "wall seconds", standoff: 6 }, automargin: false },
    yaxis: { autorange: "reversed", visible: labels.length > 1, automargin: labels.length > 1 } });
  whenNear([place], () => { onTheme.push(draw); draw(); });
}
