// Runs the script of a replay's page (argv[2]) over a small DOM, and prints what a reader sees.
"use strict";
const html = require("fs").readFileSync(process.argv[2], "utf8");
const inside = (begin) => html.split(begin)[1].split("</script>")[0];

class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], dataset: {}, attributes: {}, handlers: {}, value: 0 });
    this.style = { setProperty() {} };
    this.classes = new Set();
    this.classList = {
      toggle: (name, on) => this.classes[on ? "add" : "delete"](name),
      contains: (name) => this.classes.has(name),
    };
  }
  set className(names) { this.classes = new Set(names.split(" ")); }
  set textContent(text) { this.children = [text]; }
  get textContent() {
    return this.children.map((each) => (each instanceof Element ? each.textContent : each)).join("");
  }
  get parentElement() { return this.parent || (this.parent = new Element("label")); }
  append(...added) { this.children.push(...added.map((e) => (e instanceof Element ? e : String(e)))); }
  replaceChildren() { this.children = []; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, handler) { this.handlers[name] = handler; }
  getBoundingClientRect() { return { top: 100, bottom: 120 }; }
  closest() { return this; }
  matches() { return false; }
  remove() {}
  all(name) {
    const below = this.children.filter((e) => e instanceof Element).flatMap((e) => e.all(name));
    return this.classes.has(name) ? [this, ...below] : below;
  }
}

const ids = {};
for (const [, tag, id] of html.matchAll(/<(\w+) id="(\w+)"/g)) ids[id] = new Element(tag);
ids.data.textContent = inside('<script id="data" type="application/json">');
global.document = {
  getElementById: (id) => ids[id],
  createElement: (tag) => new Element(tag),
  querySelector: () => new Element("div"),
  addEventListener(name, handler) { this[name] = handler; },
};
global.window = { innerHeight: 800, scrollBy() {} };
global.getComputedStyle = () => ({ position: "static" });
new Function(inside("<script>"))();

const seen = [];
function see() {
  seen.push({
    answer: ids.answer.textContent,
    colours: ids.answer.all("token").map((e) => [...e.classes].filter((c) => c !== "token")[0]),
    place: ids.place.textContent,
    figures: ids.figures.textContent,
    detail: ids.detail.textContent,
    accepted: ids.detail.all("chip").filter((e) => !e.classes.has("rejected")).length,
    later: ids.answer.all("later").length,
  });
}
see();
ids.pass.handlers.input({ target: { value: 1 } });
see();
ids.next.handlers.click();
document.keydown({ key: "ArrowRight", target: ids.answer, preventDefault() {} });
see();
ids.back.handlers.click();
ids.answer.handlers.click({ target: ids.answer.all("pass")[1] });
see();
ids.drafters.value = 1;
ids.drafters.handlers.change();
see();
console.log(JSON.stringify(seen));
