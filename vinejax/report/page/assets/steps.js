// One trajectory: its problem, its steps coloured by advantage, and the rollouts behind a value.

const TURN = 0.25; // a step that loses at least so much value may be the wrong turn
const ENDS = { eos: "ended by itself", stop: "ended at a stop string", length: "ran out of tokens", error: "ended in an error" };

// The step that lost the most value, if it lost much, or -1. Needs values: without them no step is worse than another.
function wrongTurn(item) {
  if (!item.v || !item.a) return -1;
  const worst = item.a.reduce((best, a, i) => (a < item.a[best] ? i : best), 0);
  return item.a[worst] <= -TURN ? worst : -1;
}

// Strength of a colour: small advantages stay visible, text on the strongest stays readable.
function tint(advantage, scale) {
  if (advantage === undefined || advantage === null) return {};
  const share = Math.sqrt(Math.min(1, Math.abs(advantage) / scale));
  if (share === 0) return {};
  return { "--tint": advantage > 0 ? "var(--gain)" : "var(--loss)", "--much": `${(6 + 36 * share).toFixed(0)}%`, "--edge": `${(30 + 70 * share).toFixed(0)}%` };
}

function verdict(item) {
  if (item.r >= 1) return ["Right", "right"];
  if (item.u) return ["Unfinished", "wrong"];
  return item.r <= 0 ? ["Wrong", "wrong"] : [item.r.toFixed(2), "between"];
}

const badge = (item) => el("span", { class: `badge ${verdict(item)[1]}` }, verdict(item)[0]);

function dots(rewards) {
  const kind = (r) => (r >= 1 ? "right" : r <= 0 ? "wrong" : "between");
  return el("span", { class: "dots", "aria-hidden": "true" },
    ...[...rewards].sort((a, b) => b - a).map((r) => el("i", { class: kind(r) })));
}

// What a step did: its advantage, and the value before and after it.
function effect(item, i) {
  const box = el("span", { class: "effect" });
  const advantage = item.a?.[i];
  if (advantage !== undefined) box.append(el("span", { class: "change" }, (advantage > 0 ? "▲ " : advantage < 0 ? "▼ " : "") + signed(advantage)));
  if (!item.v || item.v[i] === null) return box;
  const before = item.v[i], after = i + 1 < item.v.length ? item.v[i + 1] : item.r;
  box.append(el("span", { class: "values" }, `${before.toFixed(2)} → ${after === null ? "?" : after.toFixed(2)}`));
  const percent = (x) => `${(100 * Math.max(0, Math.min(1, x))).toFixed(1)}%`;
  if (after !== null) box.append(el("span", { class: "meter", "aria-hidden": "true", "--after": percent(Math.min(before, after)),
    "--from": percent(Math.min(before, after)), "--by": percent(Math.abs(after - before)) }, el("i"), el("b")));
  return box;
}

// The rollouts from one state; equal ones are counted instead of repeated.
function vines(title, rewards, texts) {
  const mean = rewards.reduce((sum, r) => sum + r, 0) / rewards.length;
  const box = el("div", {}, el("h4", {}, title));
  if (!rewards.length) return box.append(el("p", { class: "small" }, "No rollout was launched here: the value comes from other samples.")), box;
  const spread = rewards.reduce((sum, r) => sum + (r - mean) ** 2, 0), n = rewards.length;
  const error = spread > 0 ? `, standard error ${Math.sqrt(spread / n / (n - 1)).toFixed(2)}` : "";
  box.append(dots(rewards), el("p", { class: "small" },
    `${rewards.filter((r) => r >= 1).length} of ${n} right, mean reward ${mean.toFixed(2)}${error}`));
  if (!texts) return box;
  const groups = new Map();
  rewards.forEach((reward, j) => {
    const key = `${reward} ${texts[j]}`, group = groups.get(key) ?? { reward, text: texts[j], count: 0 };
    group.count += 1;
    groups.set(key, group);
  });
  const sorted = [...groups.values()].sort((a, b) => b.reward - a.reward || b.count - a.count);
  box.append(el("ol", {}, ...sorted.map((group) => el("li", {},
    badge({ r: group.reward }), group.count > 1 ? el("span", { class: "small" }, ` × ${group.count}`) : null,
    el("p", { class: "text", dir: "auto" }, group.text ?? "(this text was not kept)")))));
  return box;
}

async function openStep(box, item, i, id) {
  box.replaceChildren(el("p", { class: "small" }, "…"));
  const texts = id ? await block(id) : null;
  const end = i + 1 >= item.k.length;
  box.replaceChildren(
    vines(i === 0 ? "From the prompt" : "From before this step", item.k[i], texts?.[i]),
    end ? el("div", {}, el("h4", {}, "After this step"), el("p", { class: "small" }, `The response ends; its reward is ${item.r}.`))
      : vines("From after this step", item.k[i + 1], texts?.[i + 1]));
  if (!texts) box.append(el("p", { class: "small" }, "The rollouts' texts are not in this page."));
}

function step(item, i, turn, scale, id) {
  const open = el("div", { class: "vines", hidden: "" });
  const inside = [el("span", { class: "no" }, i + 1), el("span", { class: "text", dir: "auto" }, item.s[i].replace(/^\n+|\n+$/g, "") || "⏎"), effect(item, i)];
  const head = item.k ? el("button", { type: "button", class: "head", "aria-expanded": "false", onclick: () => {
    open.hidden = !open.hidden;
    head.setAttribute("aria-expanded", !open.hidden);
    if (!open.hidden) openStep(open, item, i, id);
  } }, ...inside) : el("div", { class: "head" }, ...inside);
  return el("li", { class: `step${i === turn ? " turn" : ""}`, id: `step-${i}`, ...tint(item.a?.[i], scale) },
    i === turn ? el("p", { class: "flag" }, item.r < 1 ? "The wrong turn: the largest loss of value" : "The largest loss of value, made good later") : null, head, open);
}

// Everything about one trajectory; `id` is the block with its rollouts' texts, if there is one.
function trajectory(problem, item, scale, id) {
  const turn = wrongTurn(item);
  const facts = [plural(item.s.length, "step"), plural(item.n, "token"), ENDS[item.f] ?? item.f].filter(Boolean).join(", ");
  return [
    el("h3", {}, `Problem ${problem.id}`),
    el("p", { class: "text problem", dir: "auto" }, problem.text || "(its text was not kept)"),
    problem.prompt ? el("p", { class: "small" }, "This is the whole prompt: the problem's own text is kept for a few trajectories an iteration only.") : null,
    problem.solution ? el("details", {}, el("summary", {}, "Reference solution"), el("p", { class: "text problem", dir: "auto" }, problem.solution)) : null,
    el("div", { class: "verdict" }, badge(item), el("span", { class: "small" }, facts),
      turn >= 0 ? el("a", { href: `#step-${turn}` }, `${item.r < 1 ? "wrong turn" : "largest loss"} at step ${turn + 1}`) : null),
    el("ol", { class: "steps" }, ...item.s.map((_, i) => step(item, i, turn, scale, id))),
    el("p", { class: "final" }, `End: reward ${item.r}`),
  ].filter(Boolean);
}
