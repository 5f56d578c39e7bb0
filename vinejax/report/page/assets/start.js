// Order of work: what can be read at once, then the viewer, then the charts, whose library is large.

function showViewer() {
  const notes = about.runs.flatMap((run) => run.notes.map((note) => (about.runs.length > 1 ? `${run.name}: ${note}` : note)));
  const place = byId("viewer");
  place.after(...notes.map((note) => el("p", { class: "note" }, note)));
  if (about.runs.some((run) => run.iterations.length)) return new Viewer(place).ready;
  place.replaceChildren(el("p", { class: "muted" }, "There are no trajectories that can be shown."));
  return Promise.resolve();
}

// The policy of this page lets a script run by the hash of its text, so this one may be unpacked.
async function loadCharts() {
  await new Promise((done) => setTimeout(done, 30)); // what is there already shows first
  document.head.append(el("script", {}, await unpacked("charts")));
  await drawCurves();
  drawPhases();
  document.documentElement.dataset.ready = "true";
}

showThemes();
showViewer().finally(loadCharts).catch((error) => {
  byId("charts-area").replaceChildren(el("p", { class: "note" }, `Not everything on this page can be shown in this browser (${error.message}).`));
  throw error;
});
