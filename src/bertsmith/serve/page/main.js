/** The page: what the server has loaded becomes tabs; language, colours and token are the reader's. */
import { answer } from "./answer.js";
import { attention } from "./attention.js";
import { choose } from "./choose.js";
import { classify } from "./classify.js";
import { compare } from "./compare.js";
import { make, rove } from "./dom.js";
import { entities } from "./entities.js";
import { fill } from "./fill.js";
import { neighbours } from "./neighbours.js";
import { makeFault, Panel } from "./panel.js";
import { pieces } from "./pieces.js";
import { getInfo, ServerError, useToken } from "./server.js";
import { keep, recall } from "./storage.js";
import { bind, setLanguage } from "./words.js";

const TABS = [fill, attention, classify, entities, answer, choose, compare, neighbours, pieces];
const find = (id) => document.getElementById(id);

const state = { models: [], panels: new Map(), current: null, chosen: new Map() };

const fits = (tab) => state.models.filter((model) => tab.needs.some((need) => model.can.includes(need)));

/** Ask what there is, and build the tabs for it. */
async function start() {
  find("fault").replaceChildren();
  try {
    state.models = (await getInfo()).models;
    if (!state.models.length) throw new ServerError("no-models");
  } catch (error) {
    find("fault").replaceChildren(makeFault(error, start));
    if (error.kind === "fault-token") askToken();
    return;
  }
  find("token-form").hidden = true;
  for (const tab of TABS.filter((one) => fits(one).length))
    state.panels.set(tab.name, new Panel(tab, { onToken: askToken }));
  const tabs = [...state.panels.keys()].map(makeTab);
  find("tabs").replaceChildren(...tabs);
  find("panels").replaceChildren(...[...state.panels.values()].map((panel) => panel.element));
  find("tabs").hidden = find("model-switch").hidden = false;
  rove(find("tabs"), Infinity, (tab) => go(tab.dataset.tab));
  showTab();
}

function makeTab(name) {
  const click = () => go(name);
  const properties = {
    type: "button",
    role: "tab",
    id: `tab-${name}`,
    "aria-controls": `panel-${name}`,
    "data-rove": true,
    "data-tab": name,
  };
  return make("button", { ...properties, say: `tab-${name}`, on: { click } });
}

function go(name) {
  if (location.hash === `#${name}`) showTab();
  else location.hash = name; // and the listener below shows it
}

/** The tab that the address names, or the first. */
function showTab() {
  const wanted = location.hash.slice(1);
  if (!state.panels.size || (wanted === "main" && state.current)) return; // the link over the header
  const name = state.panels.has(wanted) ? wanted : [...state.panels.keys()][0];
  state.current = state.panels.get(name);
  for (const [other, panel] of state.panels) {
    panel.element.hidden = other !== name;
    find(`tab-${other}`).setAttribute("aria-selected", String(other === name));
    find(`tab-${other}`).tabIndex = other === name ? 0 : -1;
  }
  showModels();
}

/** The models that can do what the tab does; each tab remembers its own. */
function showModels() {
  const { tab } = state.current;
  const models = fits(tab);
  const model = models.find(({ name }) => name === state.chosen.get(tab.name)) ?? models[0];
  find("model").replaceChildren(...models.map(({ name }) => make("option", { value: name }, name)));
  find("model").value = model.name;
  const { kind, layers, heads, width, max_length: length } = model;
  bind(find("about"), "about", { kind, layers, heads, width, length });
  state.current.open(model);
}

function askToken() {
  find("token-form").hidden = false;
  find("token").focus();
}

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(find("token").value.trim());
  find("token").value = "";
  find("token-form").hidden = true;
  if (state.current) state.current.open(state.current.model);
  else start();
});

find("model").addEventListener("change", () => {
  state.chosen.set(state.current.tab.name, find("model").value);
  showModels();
});

find("language").addEventListener("change", () => {
  keep("bertsmith-language", find("language").value);
  speak(find("language").value);
  state.current?.open(state.current.model); // an example that nobody touched may change with it
});

find("theme").addEventListener("change", () => {
  keep("bertsmith-theme", find("theme").value);
  paint(find("theme").value);
});

function speak(code) {
  find("language").value = code;
  setLanguage(code);
}

function paint(theme) {
  find("theme").value = theme;
  document.documentElement.dataset.theme = theme;
}

window.addEventListener("hashchange", showTab);
paint(["light", "dark"].find((theme) => theme === recall("bertsmith-theme")) ?? "auto");
bind(find("tabs"), "tabs", {}, "aria-label");
const preferred = recall("bertsmith-language") ?? navigator.language;
speak(preferred.toLowerCase().startsWith("zh") ? "zh" : "en");
start();
