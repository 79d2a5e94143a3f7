"use strict";
// Texts are only ever set as text, never as markup.
const page = JSON.parse(document.getElementById("data").textContent);
const NONE = page.sources.length;
const SOURCES = [...page.sources, { key: "none", name: "not drafted" }];
const at = (id) => document.getElementById(id);
let view, passes, chosen, timer;

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function many(count, what, plural) {
  return `${count.toLocaleString("en")} ${count === 1 ? what : plural || what + "s"}`;
}

// A view is one drafter's passes over one answer. A pass is [written, nodes, accepted, left out];
// nodes are flat: piece, parent, source, score in percent.
function nodesOf(pass) {
  const nodes = [];
  for (let i = 0; i < pass[1].length; i += 4) {
    const [piece, parent, source, score] = pass[1].slice(i, i + 4);
    nodes.push({ text: page.pieces[piece], parent, source, score, children: [] });
  }
  const roots = [];
  for (const node of nodes) (node.parent < 0 ? roots : nodes[node.parent].children).push(node);
  for (const i of pass[2]) nodes[i].accepted = true;
  return { nodes, roots };
}

function sourceOf(pass, token) {
  const node = pass[2][token];
  return node === undefined ? NONE : pass[1][4 * node + 2];
}

function show() {
  stop();
  const answer = page.answers[at("answers").value];
  if (!answer) {
    at("figures").textContent = "No answer has a token.";
    at("detail").hidden = true;
    return;
  }
  view = answer.views[at("drafters").value];
  const all = view.passes;
  const counts = SOURCES.map(() => 0);
  let tokens = 0, drafted = 0;
  for (const pass of all) {
    tokens += pass[0];
    drafted += pass[1].length / 4 + pass[3];
    for (let i = 0; i < pass[0]; i++) counts[sourceOf(pass, i)] += 1;
  }
  figures(all.length, tokens, drafted, counts);
  at("asked").textContent = `Prompt, ${many(answer.prompt_tokens, "token")}`;
  at("prompt").textContent = (answer.prompt_cut ? "… " : "") + answer.prompt;
  at("left").textContent = view.left
    ? `The ${many(view.left, "token")} after these are not shown.` : "";
  draw(answer.texts, all);
  at("pass").max = all.length;
  choose(longest(all), true);
}

// The longest of the first passes, which are in sight.
function longest(all) {
  let place = 0;
  all.slice(0, 40).forEach((pass, i) => { if (pass[0] > all[place][0]) place = i; });
  return place;
}

function figures(count, tokens, drafted, counts) {
  const line = at("figures");
  line.replaceChildren();
  if (!count) {
    line.append(make("span", "", "The answer has no token after the prompt's pass."));
  } else {
    line.append(make("b", "", (tokens / count).toFixed(2)), " tokens per pass ");
    line.append(make("span", "", `· ${many(tokens, "token")} in ${many(count, "pass", "passes")} ` +
      `of the model instead of ${tokens.toLocaleString("en")} · ${many(drafted, "node")} drafted`));
  }
  const bar = at("shares"), legend = at("legend");
  bar.replaceChildren();
  legend.replaceChildren();
  SOURCES.forEach((source, i) => {
    if (!counts[i]) return;
    const part = make("i", source.key);
    part.style.flexGrow = counts[i];
    bar.append(part);
    const item = make("li");
    item.append(make("span", `token sample ${source.key}`, source.name), " ");
    item.append(make("b", "", `${Math.round(100 * counts[i] / tokens)} %`), " ");
    item.append(make("span", "", counts[i].toLocaleString("en")));
    legend.append(item);
  });
}

function draw(texts, all) {
  const answer = at("answer");
  answer.replaceChildren();
  passes = [];
  const first = make("span", "pass");
  first.append(token(texts[0], NONE));
  if (texts.length) answer.append(first);
  let place = 1;
  all.forEach((pass, number) => {
    const span = make("span", "pass");
    span.dataset.pass = number;
    for (let i = 0; i < pass[0]; i++) span.append(token(texts[place++], sourceOf(pass, i)));
    answer.append(span);
    passes.push(span);
  });
}

function token(text, source) {
  const span = make("span", `token ${SOURCES[source].key}`);
  if (text === "") span.append(make("span", "half"));
  (text || "").split("\n").forEach((line, i) => {
    if (i) span.append(make("span", "break", "\n"));
    span.append(line);
  });
  return span;
}

// `whole`: the text after the pass stays as it is; otherwise it is not written yet.
function choose(number, whole) {
  const all = view.passes;
  chosen = Math.max(0, Math.min(number, all.length - 1));
  passes.forEach((span, i) => {
    span.classList.toggle("chosen", i === chosen);
    span.classList.toggle("later", !whole && i > chosen);
  });
  at("pass").value = all.length ? chosen + 1 : 0;
  at("pass").setAttribute("aria-valuetext", `pass ${chosen + 1} of ${all.length}`);
  at("place").textContent = all.length ? `pass ${chosen + 1} of ${all.length}` : "";
  detail(all[chosen], chosen);
}

function step(number) {
  if (!view) return;
  choose(number, number >= view.passes.length - 1);
  const span = passes[chosen], room = window.innerHeight;
  if (!span) return;
  const box = span.getBoundingClientRect();
  const end = getComputedStyle(at("detail")).position === "fixed" ? .55 * room : room;
  if (box.top < 60 || box.bottom > end - 20) window.scrollBy({ top: box.top - end / 2 });
}

function detail(pass, number) {
  const box = at("detail");
  box.replaceChildren();
  box.hidden = !pass;
  if (!pass) return;
  const { nodes, roots } = nodesOf(pass), accepted = pass[2].length;
  const drafted = nodes.length + pass[3], itself = pass[0] > accepted;
  box.append(make("h2", "", `Pass ${number + 1}: ${many(pass[0], "token")}`));
  box.append(make("p", "", !drafted ? "Nothing was drafted; the model wrote one token." :
    `${many(drafted, "node")} drafted, ${accepted} accepted, ${drafted - accepted} rejected` +
    (itself ? "; then the model wrote one token." : ".")));
  // The first line is what was written; rejected nodes follow, each line after its common beginning.
  const taken = pass[2].map((i) => nodes[i]);
  if (itself) taken.push({ text: textAt(number, pass[0] - 1), source: NONE, accepted: true });
  line(box, taken, 0, "line");
  rest(box, roots, 0);
  if (pass[3]) box.append(make("p", "", `${many(pass[3], "more node")} rejected, not shown.`));
  if (drafted) box.append(make("p", "key", "Filled: accepted. Dashed: rejected. " + page.scores));
}

function textAt(number, offset) {
  let place = 1 + offset;
  for (let i = 0; i < number; i++) place += view.passes[i][0];
  return page.answers[at("answers").value].texts[place];
}

// A line goes on with the best child; siblings begin lines of their own below it, those without
// children together.
function rest(box, siblings, depth) {
  const rejected = siblings.filter((each) => !each.accepted).sort((a, b) => b.score - a.score);
  for (const node of rejected.filter((each) => each.children.length)) {
    const chain = [];
    for (let next = node; next; next = best(next.children)) chain.push(next);
    line(box, chain, depth, "line branch");
    chain.forEach((each, i) => rest(box, each.children.filter((c) => c !== chain[i + 1]),
      depth + i + 1));
  }
  const single = rejected.filter((each) => !each.children.length);
  if (single.length) line(box, single, depth, "line branch single");
  for (const node of siblings) if (node.accepted) rest(box, node.children, depth + 1);
}

function best(siblings) {
  return siblings.reduce((a, b) => (a && a.score >= b.score ? a : b), undefined);
}

function line(box, chain, depth, className) {
  const element = make("div", className);
  element.style.setProperty("--depth", Math.min(depth, 12));
  chain.forEach((node) => element.append(chip(node)));
  box.append(element);
}

function chip(node) {
  const source = SOURCES[node.source];
  const span = make("span", `chip ${source.key}${node.accepted ? "" : " rejected"}`);
  const text = node.text || "·";
  const shown = { " ": "·", "\n": "⏎", "\t": "⇥" };
  for (const part of text.split(/([ \n\t])/)) {
    if (part in shown) span.append(make("u", "", shown[part]));
    else if (part) span.append(part);
  }
  if (node.score !== undefined) span.append(make("small", "", node.score));
  const verdict = node.source === NONE ? "written by the model" :
    `${source.name}, ${node.accepted ? "accepted" : "rejected"}, score ${node.score} %`;
  span.title = verdict;
  span.append(make("span", "spoken", ` (${verdict}) `));
  return span;
}

function stop() {
  clearInterval(timer);
  timer = undefined;
  at("play").textContent = "Play";
}

function play() {
  if (!view) return undefined;
  if (timer) return stop();
  at("play").textContent = "Stop";
  step(chosen >= view.passes.length - 1 || !passes.some((each) => each.classList.contains("later"))
    ? 0 : chosen + 1);
  timer = setInterval(() => {
    if (chosen >= view.passes.length - 1) return stop();
    step(chosen + 1);
  }, 450);
}

function options(select, names) {
  names.forEach((name, i) => {
    const option = make("option", "", name);
    option.value = i;
    select.append(option);
  });
  select.parentElement.hidden = names.length < 2;
  select.addEventListener("change", show);
}

function passAt(event) {
  const span = event.target.closest && event.target.closest(".pass");
  return span && span.dataset.pass !== undefined ? Number(span.dataset.pass) : undefined;
}

options(at("answers"), page.answers.map((each) => each.name));
options(at("drafters"), page.drafters);
at("about").textContent = page.about;
at("play").addEventListener("click", play);
at("back").addEventListener("click", () => { stop(); step(chosen - 1); });
at("next").addEventListener("click", () => { stop(); step(chosen + 1); });
at("pass").addEventListener("input", (event) => { stop(); step(event.target.value - 1); });
at("answer").addEventListener("click", (event) => {
  const number = passAt(event);
  if (number !== undefined) { stop(); choose(number, true); }
});
at("answer").addEventListener("pointerover", (event) => {
  const number = passAt(event);
  if (number !== undefined && !timer && event.pointerType === "mouse") {
    choose(number, !passes.some((each) => each.classList.contains("later")));
  }
});
document.addEventListener("keydown", (event) => {
  if (!view || event.target.matches("select, input, button, summary")) return;
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    stop();
    step(chosen + (event.key === "ArrowRight" ? 1 : -1));
    event.preventDefault();
  }
});
if (page.answers.length) {
  show();
} else {
  at("figures").textContent = "No answer has tokens.";
  document.querySelector(".columns").remove();
}
