// The list of trajectories with its filters, and the one that is chosen beside it.

// As the badges: full marks, no marks, and those in between, whose filter is there where such are.
const FILTERS = [["all", "All"], ["right", "Right"], ["between", "Partial"], ["wrong", "Wrong"]];
const ORDERS = [["swing", "Largest swing"], ["sampled", "As sampled"]];

function intro(run) {
  const rollouts = run.iterations.some((it) => it.texts.length);
  return "Responses that were sampled for training. Each step is coloured by its advantage: what it did to the chance of a right answer." +
    (rollouts ? " Choose a step to read the rollouts behind its values." : "");
}

// Largest change in one step.
const swing = (item) => Math.max(0, ...(item.a ?? []).map(Math.abs));

function entry(problem, item, scale, pick) {
  const turn = wrongTurn(item);
  const text = problem.text.replace(/\s+/g, " ").slice(0, 120);
  return el("button", { type: "button", onclick: pick },
    el("span", { class: "line" }, badge(item), el("span", {}, text ? (problem.prompt ? `prompt: ${text}` : text) : problem.id)),
    item.a ? el("span", { class: "strip", "aria-hidden": "true" },
      ...item.a.slice(0, 60).map((a, i) => el("i", { class: i === turn ? "turn" : "", ...tint(a, scale) }))) : null);
}

class Viewer {
  constructor(place) {
    this.run = 0;
    this.filter = "all";
    this.order = "swing";
    this.withTexts = false;
    this.controls = el("div", { class: "bar" });
    this.count = el("p", { class: "small", "aria-live": "polite" });
    this.list = el("ul", { class: "list" });
    this.detail = el("div", { class: "detail" });
    this.list.addEventListener("keydown", (event) => this.move(event));
    this.key = el("span", { class: "scale" });
    place.replaceChildren(this.controls, el("div", { class: "strip-key" }, this.count, this.key), el("div", { class: "viewer" }, this.list, this.detail));
    // The first run with the most to look at: texts of rollouts, or at least trajectories.
    const rank = about.runs.map((run) => (run.iterations.some((it) => it.texts.length) ? 3 : 0)
      || (run.iterations.length ? 1 + run.values : 0));
    this.useRun(rank.indexOf(Math.max(...rank)));
  }

  get iterations() { return about.runs[this.run].iterations; }

  useRun(run) {
    this.run = run;
    byId("viewer-intro").textContent = intro(about.runs[run]);
    this.at = this.iterations.length - 1;
    this.drawControls();
    this.ready = this.load();
  }

  drawControls() {
    const several = about.runs.flatMap((run, i) => (run.iterations.length ? [[i, run.name]] : []));
    const select = (label, options, current, chosen) => {
      const node = el("select", { "aria-label": label, onchange: () => chosen(Number(node.value)) }, ...options.map(([value, title]) => el("option", { value }, title)));
      node.value = current;
      return el("label", {}, label, node);
    };
    this.filters = el("div", { class: "choice", role: "group", "aria-label": "Which" });
    const orders = el("div", { class: "choice", role: "group", "aria-label": "Order" });
    choice(orders, ORDERS, this.order, (value) => { this.order = value; this.show(); });
    const box = el("input", { type: "checkbox", onchange: () => { this.withTexts = box.checked; this.show(); } });
    box.checked = this.withTexts;
    this.controls.replaceChildren(...[
      several.length > 1 ? select("Run", several, this.run, (run) => this.useRun(run)) : null,
      select("Iteration", this.iterations.map((it, i) => [i, it.number]), this.at, (at) => { this.at = at; this.load(); }),
      this.filters, orders,
      this.iterations.some((it) => it.texts.length) ? el("label", {}, box, "with rollouts' texts") : null,
    ].filter(Boolean));
  }

  async load() {
    const iteration = this.iterations[this.at];
    const data = await block(iteration.id);
    if (iteration !== this.iterations[this.at]) return; // another one was chosen in the meantime
    this.data = data;
    const swings = data.items.map(swing);
    // Values lie in [0, 1], so their differences share one scale; other advantages have their own.
    this.scale = data.items.some((item) => item.v) ? 1 : Math.max(1e-9, ...swings);
    const most = this.scale.toFixed(this.scale === 1 ? 0 : 2);
    this.key.replaceChildren(...(data.items.some((item) => item.a) ? [`advantage −${most}`, el("i"), `+${most}`] : []));
    const kinds = FILTERS.filter(([kind]) => kind !== "between" || data.items.some((item) => verdict(item)[1] === kind));
    if (!kinds.some(([kind]) => kind === this.filter)) this.filter = "all";
    choice(this.filters, kinds, this.filter, (value) => { this.filter = value; this.show(); });
    this.show();
  }

  show() {
    const { problems, items } = this.data, iteration = this.iterations[this.at], texts = new Set(iteration.texts);
    const kept = items.map((item, m) => m).filter((m) =>
      (this.filter === "all" || verdict(items[m])[1] === this.filter) && (!this.withTexts || texts.has(m)));
    if (this.order === "swing") kept.sort((a, b) => swing(items[b]) - swing(items[a]) || a - b);
    this.entries = new Map(kept.map((m) => [m, entry(problems[items[m].p], items[m], this.scale, () => this.choose(m, true))]));
    this.list.replaceChildren(...[...this.entries.values()].map((node) => el("li", {}, node)));
    const number = (kind) => kept.filter((m) => verdict(items[m])[1] === kind).length, partial = number("between");
    this.count.textContent = kept.length
      ? `${plural(kept.length, "trajectory").replace("ys", "ies")} of iteration ${iteration.number}, ${number("right")} right${partial ? `, ${partial} with a part of the marks` : ""}`
      : "No trajectory of this iteration is of this kind.";
    this.detail.hidden = this.list.hidden = !kept.length;
    if (kept.length) this.choose(kept.find((m) => texts.has(m)) ?? kept[0], false);
  }

  choose(m, byHand) {
    const item = this.data.items[m], iteration = this.iterations[this.at];
    for (const [other, node] of this.entries) node.setAttribute("aria-current", other === m);
    const row = this.entries.get(m).parentNode, list = this.list;
    if (row.offsetTop < list.scrollTop || row.offsetTop + row.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = row.offsetTop;
    this.detail.replaceChildren(...trajectory(this.data.problems[item.p], item, this.scale,
      iteration.texts.includes(m) ? `${iteration.id}-${m}` : null));
    if (byHand && getComputedStyle(this.list.parentNode).gridTemplateColumns.split(" ").length === 1) {
      this.detail.scrollIntoView({ block: "start" });
    }
  }

  move(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const nodes = [...this.entries.values()], next = nodes[nodes.indexOf(document.activeElement) + by];
    if (!by || !next) return;
    event.preventDefault();
    next.focus();
    next.click();
  }
}
