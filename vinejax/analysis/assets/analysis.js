// Charts of the analyses: about.charts says what each one shows.

const DASHES = { reference: "dot" };

function drawn(trace) {
  const color = colour(trace.series === null ? "--soft" : `--series-${trace.series % 8}`);
  const band = trace.low && {
    type: "data", symmetric: false, thickness: 1.2, width: 3, color,
    array: trace.y.map((y, i) => (trace.high[i] === null ? 0 : trace.high[i] - y)),
    arrayminus: trace.y.map((y, i) => (trace.low[i] === null ? 0 : y - trace.low[i])),
  };
  return {
    x: trace.x, y: trace.y, name: trace.name, mode: trace.mode, text: trace.text ?? undefined,
    line: { color, width: trace.series === null ? 1.2 : 2, dash: trace.series === null ? DASHES.reference : "solid" },
    marker: { color, size: trace.mode === "markers" ? 5 : 6, opacity: trace.mode === "markers" && !band ? 0.55 : 1 },
    error_y: band || undefined, showlegend: trace.series !== null,
    hoverinfo: trace.series === null ? "skip" : "all",
  };
}

function drawChart(chart, place) {
  const axis = (title, range) => ({ title: { text: title, standoff: 6 }, ...(range ? { range } : {}) });
  plot(place, chart.traces.map(drawn), {
    height: 340, showlegend: true, legend: { orientation: "h", y: -0.28, font: { size: 11 } }, hovermode: "closest",
    margin: { l: 54, r: 14, t: 10, b: 46 },
    xaxis: { ...axis(chart.x, chart.x_range), ...(chart.categories ? { type: "category" } : {}) },
    yaxis: { ...axis(chart.y, chart.y_range), ...(chart.log ? { type: "log" } : {}) },
  });
}

async function drawAll() {
  await new Promise((done) => setTimeout(done, 30)); // what is there already shows first
  document.head.append(el("script", {}, await unpacked("charts")));
  const seen = new Set(), places = about.charts.map((chart) => byId(chart.id));
  const draw = (i) => drawChart(about.charts[i], places[i]);
  whenNear(places, (i) => { seen.add(i); draw(i); });
  onTheme.push(() => seen.forEach(draw));
  document.documentElement.dataset.ready = "true";
}

showThemes();
drawAll();
